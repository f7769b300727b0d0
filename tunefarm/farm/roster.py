"""What each measuring worker does and did, as the driver sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tunefarm.farm.executor import Measuring
from tunefarm.farm.messages import MeasureReport
from tunefarm.model.trial import Stage, Standing


@dataclass(frozen=True)
class WorkerState:
    """A measuring worker. Seconds are of this run, until the answer before the one that it works on."""

    worker: str
    """The GPU's UUID, or host and CPU."""
    target: str
    """The target's key."""
    node: str
    problem: str = ""
    """Name of the problem in its hands; empty while it waits."""
    since_s: float = 0.0
    """How long it has had that problem, or waited."""
    problems: int = 0
    """How many it has measured."""
    timing_s: float = 0.0
    verifying_s: float = 0.0
    """Verifying, and making inputs and references."""
    loading_s: float = 0.0
    """Loading plans, and starting the process that does."""
    waiting_s: float = 0.0
    """Without work: others compile, or nothing is left."""
    losses: int = 0
    """How often it was lost and replaced."""
    last: str = ""
    """What it measured last: `problem candidate 12.34 us`."""

    @property
    def busy(self) -> float:
        """Share of its time that it had work, 0 to 1."""
        busy = self.timing_s + self.verifying_s + self.loading_s
        return busy / (busy + self.waiting_s) if busy else 0.0


_STAGES = {Stage.TIME: "timing_s", Stage.LOAD: "loading_s", Stage.REFERENCE: "verifying_s", Stage.VERIFY: "verifying_s"}


class Roster:
    """The states of all measuring workers. Written by the driver, read by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody yet. `clock`: seconds, rising."""
        self._clock = clock
        self._states: dict[Measuring, tuple[WorkerState, float]] = {}

    def joined(self, worker: Measuring) -> None:
        """Take in a worker."""
        facts = worker.facts
        self._states[worker] = (WorkerState(facts.worker, facts.target.key, facts.node), self._clock())

    def began(self, worker: Measuring, problem: str) -> None:
        """A worker was given a problem."""
        state, passed = self._passed(worker)
        self._keep(worker, replace(state, problem=problem, waiting_s=state.waiting_s + passed))

    def answered(self, worker: Measuring, report: MeasureReport) -> None:
        """A worker measured its problem."""
        state, passed = self._passed(worker)
        sums = {name: getattr(state, name) for name in _STAGES.values()}
        for stage, seconds in report.seconds.items():
            sums[_STAGES[stage]] += seconds
        sums["loading_s"] += max(0.0, passed - sum(report.seconds.values()))  # carrying the plans, and the answer
        last = next((o for o in report.outcomes if o.standing is Standing.WON and o.measurement is not None), None)
        if last is not None and last.measurement is not None:
            shown = f"{state.problem} {last.candidate.label} {last.measurement.time_us:.4g} us"
            state = replace(state, last=shown)
        self._keep(worker, replace(state, problem="", problems=state.problems + 1, **sums))

    def lost(self, worker: Measuring) -> None:
        """A worker was lost, and another is put in its place: the time counts as waiting."""
        state, passed = self._passed(worker)
        self._keep(worker, replace(state, problem="", losses=state.losses + 1, waiting_s=state.waiting_s + passed))

    @property
    def workers(self) -> tuple[WorkerState, ...]:
        """Every worker as it is now."""
        now = self._clock()
        return tuple(
            replace(state, since_s=now - since)
            if state.problem
            else replace(state, since_s=now - since, waiting_s=state.waiting_s + now - since)
            for state, since in list(self._states.values())
        )

    def _passed(self, worker: Measuring) -> tuple[WorkerState, float]:
        state, since = self._states[worker]
        return state, self._clock() - since

    def _keep(self, worker: Measuring, state: WorkerState) -> None:
        self._states[worker] = (state, self._clock())
