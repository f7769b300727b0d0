"""The jobs that children run: describe, propose, build, measure. Imported by the fork server beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunefarm.engines import make_engine
from tunefarm.engines.engine import Engine
from tunefarm.farm.isolation import Emit
from tunefarm.measure.session import measure_problem
from tunefarm.model.candidate import Candidate, Plan, Proposal, unasked_candidate
from tunefarm.model.errors import Declined
from tunefarm.model.job import Protocol, Search
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.model.trial import Failure, Outcome, Stage, Status

_engines: dict[tuple[str, str | None], Engine] = {}


def _engine(name: str, profile: str | None) -> Engine:
    """The process's one engine of that name: it keeps its handle, its last graph and its kernel caches."""
    if (name, profile) not in _engines:
        _engines[name, profile] = make_engine(name, profile)
    return _engines[name, profile]


@dataclass(frozen=True)
class Describe:
    """Tell what this process's device is."""

    def __call__(self, _emit: Emit) -> tuple[Target, str]:
        """(target, worker id)."""
        from tunefarm.engines.target import describe_target, worker_id

        return describe_target(), worker_id()


@dataclass(frozen=True)
class Propose:
    """Ask one engine for candidates of a problem."""

    engine: str
    problem: Problem
    search: Search
    profile: str | None

    def __call__(self, _emit: Emit) -> Proposal:
        """The proposal, with a refusal for an engine that declines."""
        try:
            return _engine(self.engine, self.profile).propose(self.problem, self.search)
        except Declined as refusal:
            return Proposal(self.engine, refusal=str(refusal))


@dataclass(frozen=True)
class Widen:
    """Ask one engine for candidates of a wider space."""

    engine: str
    problem: Problem
    search: Search
    profile: str | None

    def __call__(self, _emit: Emit) -> tuple[Candidate, ...] | Failure:
        """The candidates, or why there are none."""
        try:
            return _engine(self.engine, self.profile).widen(self.problem, self.search)
        except Declined as refusal:
            return Failure(unasked_candidate(self.engine), Status.DECLINED, Stage.PROPOSE, str(refusal))


@dataclass(frozen=True)
class Build:
    """Compile one candidate."""

    problem: Problem
    candidate: Candidate
    profile: str | None

    def __call__(self, _emit: Emit) -> Plan | Failure:
        """The plan, or why there is none."""
        try:
            return _engine(self.candidate.engine, self.profile).build(self.problem, self.candidate)
        except Declined as refusal:
            return Failure(self.candidate, Status.DECLINED, Stage.BUILD, str(refusal))


@dataclass(frozen=True)
class Measure:
    """Verify and time the plans of one problem. Emits the events of `measure.session`."""

    problem: Problem
    plans: tuple[Plan, ...]
    protocol: Protocol
    incumbent: str | None

    def __call__(self, emit: Emit) -> tuple[Outcome, ...]:
        """One outcome a plan."""
        report: Callable[[object], None] = emit
        return measure_problem(self.problem, self.plans, self.protocol, report, self.incumbent)
