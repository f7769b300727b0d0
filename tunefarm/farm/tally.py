"""Counts of a sweep under way, shown a few times a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from tunefarm.farm.messages import BuildReport
from tunefarm.farm.progress import Progress, SweepState
from tunefarm.model.trial import Stage, Standing, Status, Trial

SHOW_EVERY_S = 0.1
RECENT = 3


class Tally:
    """Keeps the counts and tells `Progress` of them."""

    def __init__(self, progress: Progress) -> None:
        """Start the clock."""
        self._progress = progress
        self._started = time.monotonic()
        self._shown = 0.0
        self._phase = ""
        self._total = self._done = self._done_before = 0
        self._proposed = self._built = self._build_failed = 0
        self._by_status = dict.fromkeys(Status, 0)
        self._best: deque[str] = deque(maxlen=RECENT)

    def phase(self, phase: str) -> None:
        """Say what the farm is doing now."""
        changed, self._phase = phase != self._phase, phase
        self._show(now=changed)

    def start(self, problems: int, done: int) -> None:
        """Say how many problems there are, and how many need no work."""
        self._total, self._done, self._done_before = problems, done, done
        self._show(now=True)

    def proposed(self, candidates: int) -> None:
        """Count candidates that engines came up with."""
        self._proposed += candidates
        self._show()

    def built(self, report: BuildReport) -> None:
        """Count plans; candidates that got none are counted by their rows."""
        self._built += len(report.built)
        self._show()

    def done(self, problems: int) -> None:
        """Say how many problems this run has ended so far."""
        changed, self._done = self._done_before + problems != self._done, self._done_before + problems
        self._show(now=changed and self._done == self._total)

    def trials(self, trials: Iterable[Trial]) -> None:
        """Count rows."""
        rows = tuple(trials)
        for trial in rows:
            if trial.outcome.stage in (Stage.PROPOSE, Stage.BUILD):
                self._build_failed += 1
            else:
                self._by_status[trial.outcome.status] += 1
        self._best.extend(_winner_line(rows))
        self._show()

    def _show(self, *, now: bool = False) -> None:
        clock = time.monotonic()
        if not now and clock - self._shown < SHOW_EVERY_S:
            return
        self._shown = clock
        elapsed = clock - self._started
        here = self._done - self._done_before
        count = self._by_status
        self._progress.update(
            SweepState(
                problems_total=self._total,
                problems_done=self._done,
                candidates_proposed=self._proposed,
                built=self._built,
                build_failed=self._build_failed,
                verified=count[Status.MEASURED],
                wrong=count[Status.WRONG],
                crashed=count[Status.CRASHED] + count[Status.TIMED_OUT],
                failed=count[Status.FAILED] + count[Status.DECLINED],
                measured=count[Status.MEASURED],
                best=tuple(self._best),
                elapsed_s=elapsed,
                eta_s=elapsed / here * (self._total - self._done) if here else None,
                phase=self._phase,
            )
        )


def _winner_line(trials: Iterable[Trial]) -> Iterable[str]:
    """The winner among rows of one problem, with its gain over cuDNN's default or torch."""
    measured = [t for t in trials if t.outcome.measurement is not None]
    winner = next((t for t in measured if t.outcome.standing is Standing.WON), None)
    if winner is None or winner.outcome.measurement is None:
        return
    rivals = [t for t in measured if t.outcome.candidate.is_default] or [
        t for t in measured if t.outcome.candidate.engine == "torch"
    ]
    times = [t.outcome.measurement.time_us for t in rivals if t.outcome.measurement is not None]
    gain = f" {min(times) / winner.outcome.measurement.time_us:.2f}x" if times else ""
    yield f"{winner.name} {winner.outcome.candidate.label}{gain}"
