"""One problem's plans on one device: load, verify, screen, race, confirm. Runs in a process that may die."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tunefarm.model.candidate import Candidate, Plan
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


def measure_problem(
    problem: Problem,
    plans: Sequence[Plan],
    protocol: Protocol,
    report: Report,
    incumbent: str | None = None,
) -> tuple[Outcome, ...]:
    """Verify every plan, time those that are right, and choose.

    Every plan gets exactly one outcome. A plan that raises is an outcome; one that kills or hangs the process is the
    caller's to find out from the last `Entered`, who then calls again without it.

    Args:
        problem: the problem that all plans are for.
        plans: built plans, torch's recipes among them.
        protocol: how to verify and time.
        report: told of each step before it begins, and of each candidate that fell out before the race.
        incumbent: key of the candidate that the store holds as winner: it wins ties.

    Raises:
        Exception: inputs or reference can't be made (out of memory, say): the problem's failure, at stage `reference`.
    """
    raise NotImplementedError


__all__ = ["Candidate", "Entered", "Event", "Mapping", "Report", "Settled", "measure_problem"]
