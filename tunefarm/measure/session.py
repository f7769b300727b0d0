"""One problem's plans on one device: load, verify, screen, race, confirm. Runs in a process that may die."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunefarm.model.candidate import Plan
from tunefarm.model.job import Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Outcome, Stage


@dataclass(frozen=True)
class Entered:
    """A step begins: what is in hand, and how long it may take before its process is to be killed."""

    stage: Stage
    candidate: str | None
    """Key of the candidate in hand; None while the problem's own inputs and reference are made."""
    deadline_s: float


@dataclass(frozen=True)
class Settled:
    """A candidate's fate is known before the race: it was declined, failed or wrong. It needs no second try."""

    outcome: Outcome


Event = Entered | Settled
Report = Callable[[Event], None]


class DevicePoisonedError(Exception):
    """A candidate left the device unusable, as an illegal access does. Only a new process can go on, without it."""

    def __init__(self, candidate: str, stage: Stage, reason: str) -> None:
        self.candidate = candidate
        self.stage = stage
        self.reason = reason
        super().__init__(f"the device is lost after candidate {candidate} at stage {stage}: {reason}")

    def __reduce__(self) -> tuple[type, tuple[str, Stage, str]]:
        return type(self), (self.candidate, self.stage, self.reason)


def measure_problem(
    problem: Problem,
    plans: Sequence[Plan],
    protocol: Protocol,
    report: Report,
    incumbent: str | None = None,
) -> tuple[Outcome, ...]:
    """Verify every plan, time those that are right, and choose.

    Runs on torch's current device, or on the CPU where there is no GPU. Every plan gets exactly one outcome. A plan
    that raises is an outcome; one that kills or hangs the process is the caller's to find out from the last `Entered`,
    who then calls again without it.

    Args:
        problem: the problem that all plans are for.
        plans: built plans, torch's recipes among them, each candidate once.
        protocol: how to verify and time.
        report: told of each step before it begins, and of each candidate that fell out.
        incumbent: key of the candidate that the store holds as winner: it wins ties.

    Raises:
        DevicePoisonedError: a candidate left the device unusable. It is the one that was entered last.
        Exception: inputs or reference can't be made (out of memory, say): the problem's failure, at stage `reference`.
    """
    # Heavy, and the farm's driver imports this module for its events alone.
    from tunefarm.measure.bench import bench_here
    from tunefarm.measure.contest import Contest
    from tunefarm.measure.handling import REFERENCE_DEADLINE_S, Handling
    from tunefarm.ops import operation_of

    report(Entered(Stage.REFERENCE, None, REFERENCE_DEADLINE_S))
    bench = bench_here(protocol.cache)
    handling = Handling(
        problem=problem,
        operation=operation_of(problem),
        protocol=protocol,
        bench=bench,
        report=report,
        workspaces=[plan.workspace_bytes for plan in plans],
    )
    rng = random.Random(f"{problem.key} {protocol.seed}")  # noqa: S311 - orders rounds, hides nothing
    contest = Contest(
        plans=plans,
        handling=handling,
        timer=bench.timer,
        max_rounds=protocol.max_rounds,
        incumbent=incumbent,
        rng=rng,
    )
    return contest.run()
