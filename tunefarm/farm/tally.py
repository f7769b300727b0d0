"""Counts of a sweep under way, shown a few times a second; and every event of it, for the log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence

from tunefarm.farm.messages import BuildReport
from tunefarm.farm.progress import Progress, SweepState
from tunefarm.farm.status import Ended
from tunefarm.model.trial import Stage, Standing, Status, Trial

SHOW_EVERY_S = 0.1
RECENT = 3
EXPECTED = (Status.MEASURED, Status.DECLINED)
"""How trials end that are no cause for a warning."""

_NOT_BUILT = (Stage.PROPOSE, Stage.BUILD)

_log = logging.getLogger("tunefarm.sweep")
_log.addHandler(logging.NullHandler())  # else warnings are printed where nobody configured logging


class Tally:
    """Keeps the counts and tells `Progress` of them.

    Logs each event of the sweep as a record of the logger `tunefarm.sweep`: the message names the event, and its
    attribute `fields` has the sweep's id and what belongs to the event.
    """

    def __init__(self, sweep: str, job: str, watchers: Sequence[Progress]) -> None:
        """Start the clock."""
        self._sweep = sweep
        self._watchers = watchers
        self._started = time.monotonic()
        self._shown = 0.0
        self._phase = ""
        self._total = self._done = self._done_before = 0
        self._proposed = self._built = self._build_failed = 0
        self._ended: dict[Stage, dict[Status, int]] = {}
        self._trials = 0
        self._best: deque[str] = deque(maxlen=RECENT)
        self._tell(logging.INFO, "began", job=job)

    def phase(self, phase: str) -> None:
        """Say what the farm is doing now."""
        changed, self._phase = phase != self._phase, phase
        if changed:
            self._tell(logging.DEBUG, "phase", phase=phase)
        self._show(now=changed)

    def start(self, problems: int, done: int) -> None:
        """Say how many problems there are, and how many need no work."""
        self._total, self._done, self._done_before = problems, done, done
        self._tell(logging.INFO, "planned", problems=problems, done_before=done)
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
            outcome = trial.outcome
            if outcome.stage in _NOT_BUILT:
                self._build_failed += 1
            counts = self._ended.setdefault(outcome.stage, {})
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
            level = logging.DEBUG if outcome.status in EXPECTED else logging.WARNING
            if _log.isEnabledFor(level):
                self._tell(level, "trial", **_fields(trial))
        self._trials += len(rows)
        if winner := next((t for t in rows if t.outcome.standing is Standing.WON), None):
            self._best.append(_winner_line(winner, rows))
            self._tell(logging.INFO, "winner", **_fields(winner))
        self._show()

    def lost(self, worker: str, problem: str, reason: str) -> None:
        """Say that a worker was lost, and another put in its place."""
        self._tell(logging.WARNING, "worker lost", worker=worker, problem=problem, reason=reason)

    def ended(self, how: Ended, reason: str) -> None:
        """Say how the sweep ended, and if it failed, why."""
        level = logging.ERROR if how is Ended.FAILED else logging.INFO
        self._tell(level, how.value, reason=reason, problems_done=self._done, trials=self._trials)
        self._show(now=True)

    def _tell(self, level: int, event: str, **fields: object) -> None:
        _log.log(level, event, extra={"fields": {"sweep": self._sweep, **fields}})

    def _show(self, *, now: bool = False) -> None:
        clock = time.monotonic()
        if not now and clock - self._shown < SHOW_EVERY_S:
            return
        self._shown = clock
        elapsed = clock - self._started
        here = self._done - self._done_before
        count = {
            status: sum(counts.get(status, 0) for stage, counts in self._ended.items() if stage not in _NOT_BUILT)
            for status in Status
        }
        state = SweepState(
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
            ended={stage: dict(counts) for stage, counts in self._ended.items()},
        )
        for watcher in self._watchers:
            watcher.update(state)


def _fields(trial: Trial) -> dict[str, object]:
    """What the log says of a trial."""
    outcome = trial.outcome
    return {
        "problem": trial.name,
        "problem_key": trial.problem.key,
        "target": trial.target,
        "candidate": outcome.candidate.label,
        "status": outcome.status.value,
        "stage": outcome.stage.value,
        "reason": outcome.reason or outcome.why,
        "time_us": outcome.measurement.time_us if outcome.measurement else None,
        "worker": trial.worker,
    }


def _winner_line(winner: Trial, trials: Iterable[Trial]) -> str:
    """The winner among rows of one problem, with its gain over cuDNN's default or torch."""
    measured = [t for t in trials if t.outcome.measurement is not None]
    rivals = [t for t in measured if t.outcome.candidate.is_default] or [
        t for t in measured if t.outcome.candidate.engine == "torch"
    ]
    times = [t.outcome.measurement.time_us for t in rivals if t.outcome.measurement is not None]
    time_us = winner.outcome.measurement.time_us if winner.outcome.measurement else 0.0
    gain = f" {min(times) / time_us:.2f}x" if times and time_us else ""
    return f"{winner.name} {winner.outcome.candidate.label}{gain}"
