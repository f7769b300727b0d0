"""How a sweep's progress is shown, on stderr: a live display on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from tunefarm.cli.output import Stderr, note
from tunefarm.farm.progress import Progress, SweepState

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 30.0
LINE_AT_LEAST_S = 5.0
"""Between two lines at changes of phase: compiling and measuring alternate."""


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """The progress that suits stderr, taken down at the end."""
    if not Stderr().isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=cast("TextIO", Stderr()), highlight=False)
    with Live(console=console, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
        yield LiveProgress(live)


class PlainProgress:
    """A line every 30 seconds, and where the phase changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is printed yet.

        Args:
            clock: seconds, rising.
        """
        self._clock = clock
        self._phase: str | None = None
        self._printed_at = -LINE_EVERY_S

    def update(self, state: SweepState) -> None:
        """Print a line if one is due."""
        waited = self._clock() - self._printed_at
        changed = state.phase != self._phase
        if waited < LINE_EVERY_S and not (changed and (self._phase is None or waited >= LINE_AT_LEAST_S)):
            return
        self._phase, self._printed_at = state.phase, self._clock()
        note(line_of(state))


class LiveProgress:
    """A bar, the candidates' counts and the latest winners, redrawn in place."""

    def __init__(self, live: Live) -> None:
        """Draw into a running live display."""
        self._live = live

    def update(self, state: SweepState) -> None:
        """Redraw."""
        self._live.update(picture_of(state))


def line_of(state: SweepState) -> str:
    """The state in one line."""
    if not state.problems_total:
        return f"[{span(state.elapsed_s)}] {state.phase}"
    left = f", {span(state.eta_s)} left" if state.eta_s is not None else ""
    return (
        f"[{span(state.elapsed_s)}] {state.phase}: {state.problems_done}/{state.problems_total} problems, "
        f"{counts_of(state)}{left}"
    )


def picture_of(state: SweepState) -> RenderableType:
    """The state as a few lines for a terminal."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1, min_width=5)
    bar.add_column(no_wrap=True)
    bar.add_row(
        Text(f"{state.problems_done}/{state.problems_total} problems" if state.problems_total else ""),
        ProgressBar(total=state.problems_total or None, completed=state.problems_done, pulse=not state.problems_total),
        Text(f"{span(state.eta_s)} left" if state.eta_s is not None else ""),
    )
    counts = f": {counts_of(state)}" if state.problems_total else ""
    lines = [Text(f"[{span(state.elapsed_s)}] {state.phase}{counts}", overflow="fold")]
    lines += [Text(f"  {winner}", style="dim", overflow="ellipsis", no_wrap=True) for winner in state.best]
    return Group(bar, *lines)


def counts_of(state: SweepState) -> str:
    """What became of the candidates so far; kinds of failure only where there are any."""
    parts = [f"{state.built} of {state.candidates_proposed} candidates built", f"{state.verified} verified"]
    failures = {
        "not buildable": state.build_failed,
        "wrong": state.wrong,
        "crashed": state.crashed,
        "failed or declined": state.failed,
    }
    return ", ".join(parts + [f"{count} {what}" for what, count in failures.items() if count])


def span(seconds: float) -> str:
    """A time span for people: `45 s`, `2 min 5 s`, `3 h 12 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
