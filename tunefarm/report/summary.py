"""Summaries of trials: who won, by how much, and what became of the others. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tunefarm.model.job import Protocol, Task
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Measurement, Standing, Status, Trial

_STANDINGS = list(Standing)
_STATUSES = list(Status)


@dataclass(frozen=True)
class ProblemSummary:
    """What is known of one problem on one target under one protocol."""

    name: str
    """The name that the latest trial's job gave the problem."""
    problem: Problem
    target: str
    """The target's key."""
    protocol: Protocol
    winner: Trial | None = None
    default: Trial | None = None
    """What cuDNN's heuristic puts first, however it ended."""
    torch: Trial | None = None
    """The fastest of torch."""
    eager: Trial | None = None
    """The fastest of torch that needs no compiling."""
    trials: tuple[Trial, ...] = field(default=(), repr=False)
    """Every candidate: the winner, the other measured ones by standing and time, then those that fell out."""
    refusals: tuple[Trial, ...] = field(default=(), repr=False)
    """Rows of engines that gave no candidate at all."""

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many candidates ended how."""
        return Counter(trial.outcome.status for trial in self.trials)

    def gain_over(self, other: Trial | None) -> float | None:
        """The other's time over the winner's; None where one has no time, or two devices measured them."""
        return None if self.winner is None or other is None else time_ratio(other, self.winner)

    @property
    def spread(self) -> float | None:
        """The slowest measured cuDNN candidate's time over the fastest's, on one device; None with fewer than two."""
        by_worker: dict[str, list[float]] = {}
        for trial in self.trials:
            if trial.outcome.measurement and trial.outcome.candidate.engine == "cudnn":
                by_worker.setdefault(trial.worker, []).append(trial.outcome.measurement.time_us)
        times = max(by_worker.values(), key=len, default=[])
        return max(times) / min(times) if len(times) > 1 and min(times) > 0 else None


def summarize(trials: Iterable[Trial]) -> tuple[ProblemSummary, ...]:
    """One summary for each (problem, target, protocol), in the order in which they first come.

    Args:
        trials: current rows: at most one for each (problem, target, candidate, protocol).
    """
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.problem.key, trial.target, trial.protocol.key), []).append(trial)
    return tuple(_summarize_one(group) for group in groups.values())


def summarize_job(tasks: Iterable[Task], targets: Iterable[str], trials: Iterable[Trial]) -> tuple[ProblemSummary, ...]:
    """One summary for each task on each target, in the job's order and under its names; also where there is no trial.

    Args:
        tasks: of the job.
        targets: keys of the targets that it was to run on.
        trials: current rows; those of other problems, targets and protocols are left out.
    """
    known = {(s.problem.key, s.target, s.protocol.key): s for s in summarize(trials)}
    tasks = tuple(tasks)
    summaries = []
    for target in targets:
        for task in tasks:
            summary = known.get((task.problem.key, target, task.protocol.key))
            if summary is None:
                summary = ProblemSummary(task.name, task.problem, target, task.protocol)
            summaries.append(replace(summary, name=task.name))
    return tuple(summaries)


def _summarize_one(trials: Sequence[Trial]) -> ProblemSummary:
    latest = max(trials, key=lambda trial: trial.finished_at)
    refusals = tuple(trial for trial in trials if trial.outcome.candidate.is_stand_in)
    ordered = sorted((trial for trial in trials if not trial.outcome.candidate.is_stand_in), key=_place)
    won = [trial for trial in ordered if trial.outcome.standing is Standing.WON]
    torch = [trial for trial in ordered if trial.outcome.candidate.engine == "torch"]
    return ProblemSummary(
        name=latest.name,
        problem=latest.problem,
        target=latest.target,
        protocol=latest.protocol,
        winner=max(won, key=lambda trial: trial.finished_at, default=None),
        default=next((trial for trial in ordered if trial.outcome.candidate.is_default), None),
        torch=_fastest(torch),
        eager=_fastest([trial for trial in torch if not trial.outcome.candidate.is_compiled]),
        trials=tuple(ordered),
        refusals=refusals,
    )


def titles(summaries: Sequence[ProblemSummary]) -> list[str]:
    """A name for each summary: the job's, with the problem's label behind it where several share the job's."""
    problems: dict[str, set[str]] = {}
    for summary in summaries:
        problems.setdefault(summary.name, set()).add(summary.problem.key)
    return [s.name if len(problems[s.name]) == 1 else f"{s.name}: {s.problem.label}" for s in summaries]


def time_ratio(numerator: Trial, denominator: Trial) -> float | None:
    """One trial's time over another's; None where one has no time above 0, or two devices measured them."""
    over, under = numerator.outcome.measurement, denominator.outcome.measurement
    if over is None or under is None or numerator.worker != denominator.worker:
        return None
    return over.time_us / under.time_us if over.time_us > 0 and under.time_us > 0 else None


def error_of(trial: Trial) -> float | None:
    """The largest relative L2 error of a trial's outputs, NaN if one is; None if it was not verified."""
    verdict = trial.outcome.verdict
    errors = [output.l2 for output in verdict.outputs] if verdict else []
    if any(math.isnan(error) for error in errors):
        return math.nan  # `max` would pass over it
    return max(errors, default=None)


def _place(trial: Trial) -> tuple[int, int, float, str]:
    outcome = trial.outcome
    standing = _STANDINGS.index(outcome.standing) if outcome.standing else len(_STANDINGS)
    return standing, _STATUSES.index(outcome.status), _time(outcome.measurement), outcome.candidate.label


def _time(measurement: Measurement | None) -> float:
    return measurement.time_us if measurement else math.inf


def _fastest(trials: Sequence[Trial]) -> Trial | None:
    """The fastest of those that were timed beside the winner, in the rounds after the choice, if any were.

    A time from other rounds is of another minute: a large product may be 10 % slower in the next, its GPU hotter.
    """
    measured = [trial for trial in trials if trial.outcome.measurement]
    confirmed = [trial for trial in measured if trial.outcome.measurement and trial.outcome.measurement.is_confirmed]
    return min(confirmed or measured, key=lambda trial: _time(trial.outcome.measurement), default=None)
