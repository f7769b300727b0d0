"""A compiling worker: turns problems into candidates and candidates into plans, in a child that may die."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tunefarm.farm.isolation import Child, ChildDiedError, ChildFailedError, ChildTimedOutError
from tunefarm.farm.messages import BuildReport, PlanFacts, ProposeReport
from tunefarm.farm.work import Build, Propose, Widen
from tunefarm.model.candidate import Candidate, Plan, Proposal, refused_candidate, unasked_candidate
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Failure, Stage, Status

PROPOSE_DEADLINE_S = 60.0
BUILD_DEADLINE_S = 60.0
"""Far above the 0.1 ms to 2 s that a build takes: only a hang gets here."""
JOBS_A_CHILD = 2000
"""A child is replaced after so many jobs: compilers leak."""


class Builder:
    """One compiling worker. Its child lives on between calls and keeps the kernel caches."""

    def __init__(self, env: Mapping[str, str], deadline_s: float | None = None, profile: str | None = None) -> None:
        """Nothing starts before the first call.

        Args:
            env: the child's environment; `CUDA_VISIBLE_DEVICES` says which device it builds for.
            deadline_s: bound on any one build, below the default one.
            profile: build without a device, for the one that this JSON describes.
        """
        self._child = Child({"OMP_NUM_THREADS": "1", **env})
        self._profile = profile
        self._deadline_s = min(BUILD_DEADLINE_S, deadline_s or BUILD_DEADLINE_S)

    def propose(self, problem: Problem, search: Search, engines: Sequence[str]) -> ProposeReport:
        """Ask each engine for its candidates."""
        proposals: list[Proposal] = []
        failures: list[Failure] = []
        for engine in engines:
            try:
                proposal = self._child.run_again(Propose(engine, problem, search, self._profile), PROPOSE_DEADLINE_S)
            except ChildFailedError as error:
                failures.append(failure_of(error, refused_candidate(engine), Stage.PROPOSE))
                continue
            if proposal.refusal is None:
                more = self._widen(engine, problem, search)
                if isinstance(more, Failure):
                    failures.append(more)
                else:
                    proposal = replace(proposal, candidates=tuple(dict.fromkeys((*proposal.candidates, *more))))
            proposals.append(proposal)
        return ProposeReport(tuple(proposals), tuple(failures))

    def _widen(self, engine: str, problem: Problem, search: Search) -> tuple[Candidate, ...] | Failure:
        try:
            return self._child.run_again(Widen(engine, problem, search, self._profile), PROPOSE_DEADLINE_S)
        except ChildFailedError as error:
            return failure_of(error, unasked_candidate(engine), Stage.PROPOSE)

    def build(self, problem: Problem, candidates: Sequence[Candidate]) -> tuple[BuildReport, tuple[Plan, ...]]:
        """Build candidates one after another; one that kills or hangs the child costs itself alone.

        Returns:
            The report, for the driver; and the plans, which travel straight to a measuring worker.
        """
        plans: list[Plan] = []
        failures: list[Failure] = []
        for candidate in candidates:
            result = self._build(problem, candidate)
            if isinstance(result, Failure):
                failures.append(result)
            else:
                plans.append(result)
            if self._child.jobs_run >= JOBS_A_CHILD:
                self._child.stop()
        return BuildReport(tuple(PlanFacts.of(plan) for plan in plans), tuple(failures)), tuple(plans)

    def _build(self, problem: Problem, candidate: Candidate) -> Plan | Failure:
        """The plan of one candidate, or why there is none."""
        try:
            return self._child.run_again(Build(problem, candidate, self._profile), self._deadline_s)
        except ChildFailedError as error:
            return failure_of(error, candidate, Stage.BUILD)

    def close(self) -> None:
        """End the child for good. Safe from any thread."""
        self._child.close()

    def wait_closed(self) -> None:
        """After `close`: see that it is gone."""
        self._child.wait_closed()


def failure_of(error: ChildFailedError, candidate: Candidate, stage: Stage) -> Failure:
    """The row of a candidate whose job left no result."""
    reason = " ".join(str(error).split())[:500]
    if isinstance(error, ChildDiedError):
        return Failure(candidate, Status.CRASHED, stage, reason, error.signal_name)
    status = Status.TIMED_OUT if isinstance(error, ChildTimedOutError) else Status.FAILED
    return Failure(candidate, status, stage, reason)
