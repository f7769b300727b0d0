"""What goes between the driver and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tunefarm.model.candidate import Candidate, Knobs, Plan, Proposal
from tunefarm.model.target import Target
from tunefarm.model.trial import Failure, Outcome, Stage


@dataclass(frozen=True)
class WorkerFacts:
    """What a measuring worker says of itself before it gets work."""

    target: Target
    worker: str
    """The GPU's UUID, or host and CPU."""
    visible_devices: str
    """`CUDA_VISIBLE_DEVICES` under which another process of its node sees the same device."""
    node: str
    """Where it runs, in the executor's terms."""


@dataclass(frozen=True)
class ProposeReport:
    """Proposals of a problem, and the engines that crashed, hung or raised instead of answering."""

    proposals: tuple[Proposal, ...]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class PlanFacts:
    """A plan less its bytes, which do not pass through the driver."""

    candidate: Candidate
    digest: str
    size: int
    workspace_bytes: int
    build_ms: float
    knobs: Knobs

    @classmethod
    def of(cls, plan: Plan) -> PlanFacts:
        """The facts of a plan."""
        return cls(plan.candidate, plan.digest, len(plan.blob), plan.workspace_bytes, plan.build_ms, plan.knobs)


@dataclass(frozen=True)
class BuildReport:
    """What became of the candidates of one build call: each is in exactly one of the two."""

    built: tuple[PlanFacts, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class MeasureReport:
    """Outcomes of one problem's plans, each plan once; and the plans worth keeping, with their bytes."""

    outcomes: tuple[Outcome, ...]
    keep: tuple[Plan, ...] = field(repr=False, default=())
    seconds: Mapping[Stage, float] = field(default_factory=dict)
    """How long each stage took, all plans together; the start of the child is part of `load`."""
