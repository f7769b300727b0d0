"""Which plan ships for each problem, by a stated policy; every choice and refusal with its reason. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tunefarm.model.candidate import NUMERICAL_NOTES
from tunefarm.model.errors import UsageError
from tunefarm.model.job import Cache
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Standing, Status, Trial


class Objective(StrEnum):
    """Which of a plan's times is to be small."""

    GRAPH = "graph"
    """Its time on the device (`time_us`, by which the race was run): for launches captured in a CUDA graph."""
    EAGER = "eager"
    """Its time when the host launches it again and again (`eager_us`), which only finalists have."""


@dataclass(frozen=True)
class Policy:
    """What may ship. Times under one cache state are never compared with those under the other."""

    cache: Cache = Cache.COLD
    objective: Objective = Objective.GRAPH
    least_gain: float = 0.01
    """What a plan has to win over cuDNN's default and over torch, or they are kept: 0.01 is 1 %."""
    max_workspace: int | None = None
    """Bytes of workspace that a plan may need."""
    deterministic_only: bool = False
    """Whether only what was seen to give equal bits for equal inputs may ship."""
    forbidden_notes: frozenset[str] = frozenset()
    """Of cuDNN's numerical notes, those that a plan must not have."""

    def breach(self, trial: Trial) -> str | None:
        """Which bound of the policy a measured plan breaks; None if it breaks none."""
        limit, candidate, verdict = self.max_workspace, trial.outcome.candidate, trial.outcome.verdict
        if limit is not None and trial.workspace_bytes is not None and trial.workspace_bytes > limit:
            return f"needs {trial.workspace_bytes} bytes of workspace, over the limit of {limit}"
        if self.deterministic_only and (verdict is None or verdict.deterministic is not True):
            if verdict and verdict.deterministic is False:
                return "not deterministic: equal inputs gave other bits"
            return "not known to be deterministic; sweep its problem again"
        if barred := sorted(self.forbidden_notes.intersection(candidate.notes)):
            return f"cuDNN notes {' and '.join(barred)} of it, which the policy forbids"
        return None

    def time_of(self, trial: Trial) -> float | None:
        """The time that counts, in microseconds; None where the trial has none above 0."""
        measured = trial.outcome.measurement
        if measured is None:
            return None
        return (measured.time_us if self.objective is Objective.GRAPH else measured.eager_us) or None


@dataclass(frozen=True)
class Choice:
    """The plan that ships for a problem on a target."""

    trial: Trial
    why: str
    default: Trial | None
    """cuDNN's default, if the same device measured it."""
    torch: Trial | None
    """The fastest of torch, of those that the same device measured."""


@dataclass(frozen=True)
class Refusal:
    """A problem that nothing ships for on a target."""

    name: str
    problem: Problem
    target: str
    why: str


Decision = Choice | Refusal


def decide(
    trials: Iterable[Trial], policy: Policy, *, kept: Collection[str], withdrawn: Collection[str] = ()
) -> tuple[Decision, ...]:
    """One decision for each problem and target, in the order in which they first come.

    Args:
        trials: current rows of the store. Every measured one was verified from the very bytes that its digest names.
        policy: what may ship.
        kept: digests of the plans whose bytes the store has.
        withdrawn: digests of plans that must never be used again.
    """
    if policy.least_gain < 0:
        raise UsageError(f"the least gain can't be negative: {policy.least_gain}")
    if unknown := sorted(policy.forbidden_notes.difference(NUMERICAL_NOTES)):
        raise UsageError(f"cuDNN has no numerical note {unknown[0]!r}; there are {', '.join(NUMERICAL_NOTES)}")
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.problem.key, trial.target), []).append(trial)
    return tuple(_Field(group, policy, kept, withdrawn).decide() for group in groups.values())


class _Field:
    """The trials of one problem on one target."""

    def __init__(
        self, trials: Sequence[Trial], policy: Policy, kept: Collection[str], withdrawn: Collection[str]
    ) -> None:
        self._trials = trials
        self._policy = policy
        self._kept = kept
        self._withdrawn = withdrawn

    def decide(self) -> Decision:
        policy = self._policy
        measured = self._comparable()
        fit = [trial for trial in measured if self._objection(trial) is None]
        if not fit:
            return self._refuse(measured)
        raced = next((trial for trial in measured if trial.outcome.standing is Standing.WON), None)
        won = raced if raced in fit and policy.objective is Objective.GRAPH else None
        best = won or min(fit, key=lambda trial: (not _is_confirmed(trial), self._time(trial), _label(trial)))
        among = "the only one" if len(fit) == 1 else f"the fastest, by {policy.objective} time, of {len(fit)}"
        why = won.outcome.why if won else f"{among} that may ship"
        for what, had in (("cuDNN's default", _default(fit)), ("torch", self._fastest_of_torch(fit))):
            if had is None or had is best or _is_torch(best):
                continue
            gain = self._time(had) / self._time(best) - 1
            if gain < policy.least_gain:
                why = f"{what}: {_label(best)} gains {gain:.1%}, less than {policy.least_gain:.1%}"
                best = had
        if raced and raced not in (best, won) and (objection := self._objection(raced)):
            why = f"{why}; the race's winner {_label(raced)} can't ship: {objection}"
        return Choice(best, why, _default(measured), self._fastest_of_torch(measured))

    def _fastest_of_torch(self, trials: Iterable[Trial]) -> Trial | None:
        by_torch = (trial for trial in trials if _is_torch(trial))
        return min(by_torch, key=lambda trial: (not _is_confirmed(trial), self._time(trial)), default=None)

    def _comparable(self) -> list[Trial]:
        """The timed trials that may be compared: of one protocol and one device, those of the latest winner.

        A resumed sweep may have run on another board; its rows were compared with nobody here.
        """
        timed = [
            trial
            for trial in self._trials
            if trial.outcome.status is Status.MEASURED
            and trial.protocol.cache is self._policy.cache
            and self._policy.time_of(trial)
        ]
        winners = [trial for trial in timed if trial.outcome.standing is Standing.WON]
        if not timed:
            return []
        leader = max(winners or timed, key=lambda trial: trial.finished_at)
        return [t for t in timed if t.protocol.key == leader.protocol.key and t.worker == leader.worker]

    def _objection(self, trial: Trial) -> str | None:
        """Why a measured plan can't ship; None if it can."""
        digest, verdict = trial.plan_digest, trial.outcome.verdict
        if verdict is None or not verdict.right:
            return "it was not verified"
        if trial.outcome.candidate.is_compiled:
            return "what torch.compile makes lives only in the process that compiled it"
        if digest is None or trial.workspace_bytes is None:
            return "it was not verified from bytes that are known"
        if digest in self._withdrawn:
            return f"plan {digest[:12]} was withdrawn"
        if digest not in self._kept:
            return "its bytes are not in the store; sweep its problem again"
        return self._policy.breach(trial)

    def _refuse(self, measured: Sequence[Trial]) -> Refusal:
        latest = max(self._trials, key=lambda trial: trial.finished_at)
        return Refusal(latest.name, latest.problem, latest.target, "; ".join(self._reasons(measured)))

    def _reasons(self, measured: Sequence[Trial]) -> Iterator[str]:
        for trial in sorted(measured, key=self._time)[:3]:
            yield f"{_label(trial)}: {self._objection(trial)}"
        if not measured:
            told = f"no candidate has a time for {self._policy.objective} launches, {self._policy.cache} cache"
            causes = {f"{_label(t)} {t.outcome.status}: {t.outcome.reason}": None for t in self._trials if _fell(t)}
            yield told + (f" ({next(iter(causes))})" if causes else "")

    def _time(self, trial: Trial) -> float:
        time = self._policy.time_of(trial)
        assert time
        return time


def _is_confirmed(trial: Trial) -> bool:
    """Timed beside the winner, after the choice: such times are of one minute and may be compared best."""
    return trial.outcome.measurement is not None and trial.outcome.measurement.is_confirmed


def _default(trials: Iterable[Trial]) -> Trial | None:
    return next((trial for trial in trials if trial.outcome.candidate.is_default), None)


def _is_torch(trial: Trial) -> bool:
    return trial.outcome.candidate.engine == "torch"


def _fell(trial: Trial) -> bool:
    return trial.outcome.status is not Status.MEASURED


def _label(trial: Trial) -> str:
    return trial.outcome.candidate.label
