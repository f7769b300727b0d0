"""What a sweep ends with: each problem's winner against what users have today, and what it all adds up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement as Width
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tunefarm.model.target import Target
from tunefarm.model.trial import Status, Trial
from tunefarm.report.figures import (
    ABSENT,
    UNBOUND,
    duration,
    microseconds,
    plural,
    printable,
    ratio,
    relative_error,
    size,
)
from tunefarm.report.summary import ProblemSummary, error_of, titles
from tunefarm.report.totals import Gain, KernelCacheUse, Totals, add_up, kernel_cache_uses

Figure = tuple[str, Callable[[ProblemSummary], str]]
"""A figure of a summary: its heading and its text, `-` where there is none."""


@dataclass(frozen=True)
class JobReport:
    """Something that rich can print: two tables a target where they fit, else some lines a problem; then totals."""

    summaries: Sequence[ProblemSummary]
    targets: Mapping[str, Target]
    """By key."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        sections: dict[tuple[str, str], list[ProblemSummary]] = {}
        for summary in self.summaries:
            sections.setdefault((summary.target, summary.protocol.cache.value), []).append(summary)
        for (target, cache), summaries in sections.items():
            label = self.targets[target].label if target in self.targets else target
            yield Text(f"{printable(label)}, {cache} cache, times in us", style="bold")
            tables = [_table(figures, summaries) for figures in (_TIMES, _PLANS)]
            unbound = options.update(max_width=UNBOUND)
            if all(Width.get(console, unbound, table).maximum <= options.max_width for table in tables):
                for table in tables:
                    yield table
                    yield ""
            else:
                for summary, title in zip(summaries, titles(summaries), strict=True):
                    yield from _lines(summary, title)
                yield ""
        yield from _kernel_cache(kernel_cache_uses(self.summaries))
        yield from _refusals(self.summaries)
        for line in totals_lines(add_up(self.summaries)):
            yield Text(line)


def totals_lines(totals: Totals) -> Iterator[str]:
    """The last lines: geometric means of the gains, then what became of the candidates."""
    gains = [("cuDNN's default", totals.over_default), ("torch", totals.over_torch)]
    if totals.over_eager != totals.over_torch:
        gains.append((EAGER, totals.over_eager))
    known = [(what, gain) for what, gain in gains if gain is not None]
    if known:
        alike = len({gain.problems for _, gain in known}) == 1
        parts = [f"against {what} {ratio(gain.mean)}{'' if alike else _over(gain)}" for what, gain in known]
        yield f"winner {', '.join(parts)}{_over(known[0][1]) if alike else ''} (geometric means)"
    if totals.without_winner:
        yield f"{totals.without_winner} of {plural(totals.problems, 'problem')} without a winner"
    total = sum(totals.counts.values())
    yield f"{plural(total, 'candidate')}: {_counts(totals.counts)}" if total else "no candidates"


def _over(gain: Gain) -> str:
    return f" over {plural(gain.problems, 'problem')}"


def _counts(counts: Mapping[Status, int]) -> str:
    return ", ".join(f"{counts[s]} {s.value.replace('_', ' ')}" for s in Status if counts.get(s))


def _winner(summary: ProblemSummary) -> str:
    if summary.winner:
        return summary.winner.outcome.candidate.label
    return f"no winner: {_counts(summary.counts) or 'no candidates'}"


def _rival(pick: Callable[[ProblemSummary], Trial | None]) -> Callable[[ProblemSummary], str]:
    def text(summary: ProblemSummary) -> str:
        trial = pick(summary)
        if trial is None:
            return ABSENT
        if trial.outcome.measurement is None:
            return trial.outcome.status.value.replace("_", " ")
        return f"{microseconds(trial.outcome.measurement.time_us)} {ratio(summary.gain_over(trial)):>6}"

    return text


def _of_winner(text: Callable[[Trial], str]) -> Callable[[ProblemSummary], str]:
    return lambda summary: text(summary.winner) if summary.winner else ABSENT


def _measured(field: str, text: Callable[[Any], str]) -> Callable[[ProblemSummary], str]:
    return _of_winner(lambda trial: text(getattr(trial.outcome.measurement, field, None)))


EAGER = "eager torch"
_TIMES: tuple[Figure, ...] = (
    ("winner", _winner),
    ("us", _measured("time_us", microseconds)),
    ("cuDNN default", _rival(lambda summary: summary.default)),
    ("torch", _rival(lambda summary: summary.torch)),
    (EAGER, _rival(lambda summary: summary.eager)),
    ("spread", lambda summary: ratio(summary.spread)),
)
_PLANS: tuple[Figure, ...] = (
    ("error", _of_winner(lambda trial: relative_error(error_of(trial)))),
    ("workspace", _of_winner(lambda trial: size(trial.workspace_bytes))),
    ("plan", _of_winner(lambda trial: size(trial.plan_bytes))),
    ("build", _of_winner(lambda trial: duration(trial.build_ms))),
    ("load", _measured("load_ms", duration)),
    ("eager us", _measured("eager_us", microseconds)),
    ("replayed us", _measured("replay_us", microseconds)),
    ("measured", lambda summary: f"{summary.counts.get(Status.MEASURED, 0)}/{len(summary.trials)}"),
)


def _table(figures: Sequence[Figure], summaries: Sequence[ProblemSummary]) -> Table:
    """One row a problem."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("problem", no_wrap=True)
    rows = [[printable(title)] for title in titles(summaries)]
    for heading, text in _worth_showing(figures, summaries):
        cells = [printable(text(summary)) for summary in summaries]
        table.add_column(heading, no_wrap=True, justify="left" if heading == "winner" else "right")
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _worth_showing(figures: Sequence[Figure], summaries: Sequence[ProblemSummary]) -> Iterator[Figure]:
    """Figures that some problem has, eager torch only where it is not the best of torch anyway."""
    for heading, text in figures:
        is_told = heading == EAGER and all(summary.eager is summary.torch for summary in summaries)
        if not is_told and any(text(summary) != ABSENT for summary in summaries):
            yield heading, text


def _lines(summary: ProblemSummary, title: str) -> Iterator[RenderableType]:
    yield Text(printable(title), style="bold")
    yield _indented(f"{_winner(summary)}  {_measured('time_us', microseconds)(summary)} us".removesuffix("  - us"))
    for figures in (_TIMES[2:], _PLANS):
        known = _worth_showing(figures, [summary])
        parts = [f"{heading} {' '.join(text(summary).split())}" for heading, text in known]
        if parts:
            yield _indented(", ".join(parts))


def _indented(text: str) -> Padding:
    return Padding(Text(printable(text)), (0, 0, 0, 2))


def _kernel_cache(uses: Sequence[KernelCacheUse]) -> Iterator[RenderableType]:
    if not uses:
        return
    yield Text("Builds with the kernel cache: problems of one structure, dynamic shapes", style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("structure", "candidate"):
        table.add_column(heading, overflow="fold")
    for heading in ("problems", "first", "later", "static shapes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for use in uses:
        figures = str(use.problems), duration(use.first_ms), duration(use.later_ms), duration(use.static_ms)
        table.add_row(Text(printable(use.structure)), Text(printable(use.candidate)), *figures)
    yield table
    yield ""


def _refusals(summaries: Sequence[ProblemSummary]) -> Iterator[RenderableType]:
    names: dict[tuple[str, str], list[str]] = {}
    for summary, title in zip(summaries, titles(summaries), strict=True):
        for trial in summary.refusals:
            names.setdefault((trial.outcome.candidate.engine, trial.outcome.reason), []).append(title)
    for (engine, reason), refused in names.items():
        which = ", ".join(refused[:3]) + (f" and {len(refused) - 3} more" if len(refused) > 3 else "")
        yield Text(printable(f"{engine} has no candidate for {which}: {reason}"))
