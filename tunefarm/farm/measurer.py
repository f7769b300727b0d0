"""A measuring worker: one device, exclusively. Verifies and times plans in a child that may die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tunefarm.engines.torch import use_all_cores
from tunefarm.farm.builder import failure_of
from tunefarm.farm.isolation import Child, ChildDiedError, ChildFailedError
from tunefarm.farm.messages import MeasureReport, WorkerFacts
from tunefarm.farm.work import Describe, Measure
from tunefarm.measure.session import Entered, Event, Settled
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Outcome, Stage, Standing, Status

DESCRIBE_DEADLINE_S = 120.0
FIRST_STEP_DEADLINE_S = 60.0
"""From the call to the first step: a new child starts CUDA meanwhile."""
PROBLEMS_A_CHILD = 200
"""A child is replaced after so many problems: loaded plans leave code and fragments on the device."""


class Measurer:
    """One measuring worker. Its child owns the device's context and lives on between calls."""

    def __init__(self, env: Mapping[str, str], node: str, deadline_s: float | None = None) -> None:
        """Nothing starts before the first call.

        Args:
            env: the child's environment; `CUDA_VISIBLE_DEVICES` says which device is its own.
            node: where it runs, in the executor's terms.
            deadline_s: bound on any one step of a candidate, below the session's own.
        """
        self._env = dict(env)
        self._node = node
        self._deadline_s = deadline_s
        self._child = Child(self._env, setup=use_all_cores)

    def describe(self) -> WorkerFacts:
        """What this worker's device is.

        Raises:
            ChildFailedError: the device can't be used.
        """
        target, worker = self._child.run_again(Describe(), DESCRIBE_DEADLINE_S)
        return WorkerFacts(target, worker, self._env["CUDA_VISIBLE_DEVICES"], self._node)

    def measure(
        self, problem: Problem, protocol: Protocol, incumbent: str | None, *batches: tuple[Plan, ...]
    ) -> MeasureReport:
        """Verify and time plans, and choose.

        A plan that crashes or hangs the child becomes an outcome, and the others are tried again without it. One that
        crashes is tried twice, the second time first in a fresh child, before it is called the cause: one call may take
        twice as many children as it has such plans, and one more.

        Args:
            problem: the problem that all plans are for.
            protocol: how to verify and time.
            incumbent: key of the candidate that the store holds as winner.
            batches: plans, as builders returned them.
        """
        plans = tuple(plan for batch in batches for plan in batch)
        settled = _twins(plans, incumbent)
        deaths: Counter[str | None] = Counter()
        suspect: str | None = None
        seconds: dict[Stage, float] = {}
        while True:
            left = tuple(plan for plan in plans if plan.candidate.key not in settled)
            if not left:
                break
            left = tuple(sorted(left, key=lambda plan: plan.candidate.key != suspect))
            watch = _Watch(self._deadline_s, seconds)
            try:
                outcomes = self._child.run(
                    Measure(problem, left, protocol, incumbent), FIRST_STEP_DEADLINE_S, watch.on_event
                )
            except ChildFailedError as error:
                watch.passed()
                self._child.stop()  # after an error of the device its context is of no more use
                settled.update(watch.settled)
                suspect = watch.at.candidate if watch.at else None
                deaths[suspect] += 1
                if isinstance(error, ChildDiedError) and deaths[suspect] == 1:
                    continue  # another may have ruined the child: this one begins the next
                culprits = [
                    p.candidate for p in left if watch.at is None or watch.at.candidate in (None, p.candidate.key)
                ]
                stage = watch.at.stage if watch.at else Stage.LOAD
                for culprit in culprits:  # with no candidate in hand the problem itself failed, for all that are left
                    if culprit.key not in settled:
                        settled[culprit.key] = Outcome.of(failure_of(error, culprit, stage))
                continue
            watch.passed()
            settled.update({outcome.candidate.key: outcome for outcome in outcomes})
            break
        if self._child.jobs_run >= PROBLEMS_A_CHILD:
            self._child.stop()
        ordered = tuple(settled[plan.candidate.key] for plan in plans)
        keep = tuple(p for p, o in zip(plans, ordered, strict=True) if _worth_keeping(o))
        return MeasureReport(ordered, keep, seconds)

    def close(self) -> None:
        """End the child for good. Safe from any thread."""
        self._child.close()

    def wait_closed(self) -> None:
        """After `close`: see that it is gone."""
        self._child.wait_closed()


def _twins(plans: Sequence[Plan], incumbent: str | None) -> dict[str, Outcome]:
    """Outcomes of plans that launch the same kernels as another one, which races for them too."""
    first: dict[tuple[str, int, str], Plan] = {}
    outcomes: dict[str, Outcome] = {}
    # What others are compared with keeps its own name.
    for plan in sorted(plans, key=lambda p: not (p.candidate.is_default or p.candidate.key == incumbent)):
        twin = first.setdefault(plan.twin_key, plan)
        if twin is not plan and not plan.candidate.is_default:
            reason = f"the same kernels as {twin.candidate.label}, which races for both"
            outcomes[plan.candidate.key] = Outcome(plan.candidate, Status.DECLINED, Stage.LOAD, reason)
    return outcomes


class _Watch:
    """Follows a session's events: what is in hand, what is settled already, and how long each stage takes."""

    def __init__(self, deadline_s: float | None, seconds: dict[Stage, float]) -> None:
        self._deadline_s = deadline_s
        self._seconds = seconds
        self._since = time.monotonic()
        self.at: Entered | None = None
        self.settled: dict[str, Outcome] = {}

    def on_event(self, event: Event) -> float | None:
        if isinstance(event, Settled):
            self.settled[event.outcome.candidate.key] = event.outcome
            return None
        self.passed()
        self.at = event
        return event.deadline_s if self._deadline_s is None else min(event.deadline_s, self._deadline_s)

    def passed(self) -> None:
        """Count the time since the last event for the stage in hand."""
        stage, now = self.at.stage if self.at else Stage.LOAD, time.monotonic()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._since
        self._since = now


def _worth_keeping(outcome: Outcome) -> bool:
    """Finalists' bytes are stored; losers are rebuilt from their knobs if they are ever wanted."""
    candidate: Candidate = outcome.candidate
    return outcome.standing in (Standing.WON, Standing.TIED) or (
        candidate.is_default and outcome.measurement is not None
    )
