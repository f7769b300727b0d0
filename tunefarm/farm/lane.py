"""The way of one target's problems through the farm: what is next. Pure: starts nothing, waits for nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from tunefarm.farm.messages import BuildReport, MeasureReport, PlanFacts, ProposeReport
from tunefarm.model.candidate import Candidate, refused_candidate
from tunefarm.model.job import Task
from tunefarm.model.keys import content_key
from tunefarm.model.trial import Failure, Outcome, Stage, Standing, Status, trial_keys

BUILD_CHUNK = 4
"""Candidates a build call: enough to share the graph and its heuristic query, few enough to spread over the cores."""
BURST_CANDIDATES = 600
"""Candidates in hand, a device, up to which a burst takes in another problem: their plans fill memory until they are
measured."""
MAX_BURST_CANDIDATES = 200_000
"""The same for all devices together: the driver keeps the facts of each."""
BURST_PROBLEMS = 16
"""Problems a device compiled before the devices get them. Each change between compiling and timing idles cores for one
build."""
MAX_LOSSES = 3
"""How often the farm may lose the worker that has a problem in hand, before the problem is given up."""


class Phase(StrEnum):
    """Compiling and timing alternate: a process that compiles beside a timed launch disturbs it."""

    COMPILE = "compile"
    MEASURE = "measure"


@dataclass(eq=False)
class Pending:
    """One problem on its way."""

    task: Task
    engines: tuple[str, ...]
    """Engines still to be asked for candidates."""
    candidates: tuple[Candidate, ...] = ()
    """What is to be built."""
    anchors: tuple[Candidate, ...] = ()
    """Measured before, and raced again if anything new is: the stored winner and the baselines."""
    incumbent: str | None = None
    unbuilt: deque[Candidate] = field(default_factory=deque)
    building: int = 0
    facts: dict[str, PlanFacts] = field(default_factory=dict)
    plans: list[Any] = field(default_factory=list, repr=False)
    losses: int = 0

    def start_building(self) -> None:
        """Queue every candidate, from nothing."""
        self.unbuilt = deque(dict.fromkeys((*self.candidates, *self.anchors)) if self.candidates else ())
        self.facts, self.plans, self.building = {}, [], 0

    def remember(self, measured: Iterable[Outcome]) -> None:
        """Take the stored or latest winner as incumbent, and it and the baselines as anchors."""
        anchors = {candidate.key: candidate for candidate in self.anchors}
        for outcome in measured:
            candidate = outcome.candidate
            if outcome.standing is Standing.WON:
                self.incumbent = candidate.key
            if outcome.standing is Standing.WON or candidate.is_default or candidate.engine == "torch":
                anchors[candidate.key] = candidate
        self.anchors = tuple(anchors.values())

    @property
    def slot(self) -> tuple[str, str]:
        """What only one task may have in hand at a time: tasks that differ in their search alone share candidates."""
        return self.task.problem.key, self.task.protocol.key

    @property
    def is_built(self) -> bool:
        """Whether nothing is left to build."""
        return not self.unbuilt and not self.building


@dataclass(frozen=True, eq=False)
class ProposeCall:
    """Ask engines for candidates."""

    pending: Pending


@dataclass(frozen=True, eq=False)
class BuildCall:
    """Build some candidates of one problem."""

    pending: Pending
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False)
class MeasureCall:
    """Verify and time all plans of one problem."""

    pending: Pending


Call = ProposeCall | BuildCall | MeasureCall


@dataclass(frozen=True)
class Finished:
    """Rows that a finished call made."""

    task: Task
    outcomes: tuple[Outcome, ...]
    facts: dict[str, PlanFacts]


class Lane:
    """Problems of one target, its phase, and the calls that are next.

    Args:
        target: the target's key.
        pending: problems that need work.
        finished: trial keys that the store has, and that need not be tried again.
        builders: how many compiling workers there are; a problem with dynamic shapes keeps to one of them.
        measurers: how many measuring workers there are.
    """

    def __init__(
        self, target: str, pending: Iterable[Pending], finished: set[str], builders: int, measurers: int = 1
    ) -> None:
        self.target = target
        self.phase = Phase.COMPILE
        self._finished = finished
        self._builders = builders
        self._todo = deque(pending)
        self._open: dict[Pending, None] = {}
        self._unbuilt: dict[Pending, None] = {}
        """Those of `_open` that have candidates which no worker has."""
        self._ready: deque[Pending] = deque()
        self._in_hand: dict[Pending, int] = {}
        """Candidates of each problem that is open or ready."""
        self._candidates = 0
        """All of them together."""
        self._most = BURST_PROBLEMS * measurers, min(BURST_CANDIDATES * measurers, MAX_BURST_CANDIDATES)
        self._twins: dict[tuple[str, str], list[Pending]] = {}
        """Problems that have not ended, by what only one of them may have in hand."""
        for waiting in self._todo:
            self._twins.setdefault(waiting.slot, []).append(waiting)
        self._taken: set[tuple[str, str]] = set()
        self._compiling = 0
        self._measuring = 0
        self.done = 0
        """Problems that need no more."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left and nothing is under way."""
        return not (self._todo or self._open or self._ready or self._compiling or self._measuring)

    def next_for_builder(self, builder: int) -> ProposeCall | BuildCall | None:
        """What an idle compiling worker should do, if anything."""
        if self.phase is not Phase.COMPILE:
            return None
        while True:
            for pending in self._unbuilt:
                if self._may_build(pending, builder):
                    return self._build_some(pending)
            opened = self._open_next()
            if opened is None:
                return None
            if opened.engines:
                self._compiling += 1
                return ProposeCall(opened)
            self._start_building(opened)

    def _build_some(self, pending: Pending) -> BuildCall:
        count = min(BUILD_CHUNK, len(pending.unbuilt))
        chunk = tuple(pending.unbuilt.popleft() for _ in range(count))
        if not pending.unbuilt:
            del self._unbuilt[pending]
        pending.building += 1
        self._compiling += 1
        return BuildCall(pending, chunk)

    def next_for_measurer(self) -> MeasureCall | None:
        """What an idle measuring worker should do, if anything."""
        if self.phase is not Phase.MEASURE or not self._ready:
            return None
        self._measuring += 1
        pending = self._ready.popleft()
        self._put_down(pending)
        return MeasureCall(pending)

    def turn(self) -> None:
        """Change the phase where the present one has nothing left to do and nothing under way."""
        if self.phase is Phase.COMPILE:
            compiled = self._ready and not self._compiling and not self._open
            if compiled and (not self._has_room() or all(p.slot in self._taken for p in self._todo)):
                self.phase = Phase.MEASURE
        elif not self._ready and not self._measuring:
            self.phase = Phase.COMPILE

    def proposed(self, call: ProposeCall, report: ProposeReport) -> Finished:
        """Take in what engines proposed. Refusals and crashes are rows at once."""
        self._compiling -= 1
        pending = call.pending
        pending.engines = ()
        candidates = [c for p in report.proposals for c in p.candidates]
        pending.candidates = (*pending.candidates, *candidates)
        refusals = [
            Failure(refused_candidate(p.engine), Status.DECLINED, Stage.PROPOSE, p.refusal)
            for p in report.proposals
            if p.refusal
        ]
        outcomes = tuple(Outcome.of(f) for f in (*refusals, *report.failures))
        self._start_building(pending)
        return Finished(pending.task, outcomes, {})

    def built(self, call: BuildCall, report: BuildReport, plans: object) -> Finished:
        """Take in built plans, and a handle on their bytes. Failures are rows at once."""
        self._compiling -= 1
        pending = call.pending
        pending.building -= 1
        pending.facts.update({facts.candidate.key: facts for facts in report.built})
        if report.built:
            pending.plans.append(plans)
        self._settle(pending)
        return self._finish(pending, tuple(Outcome.of(f) for f in report.failures))

    def measured(self, call: MeasureCall, report: MeasureReport) -> Finished:
        """Take in the outcomes of a problem."""
        self._measuring -= 1
        self._end(call.pending)
        return self._finish(call.pending, report.outcomes)

    def lost(self, call: Call, reason: str) -> Finished | None:
        """Take a call back whose worker was lost. Rows only if it was lost too often."""
        pending = call.pending
        pending.losses += 1
        given_up = pending.losses >= MAX_LOSSES
        if isinstance(call, MeasureCall):
            self._measuring -= 1
            if not given_up:  # the plans may have gone with the worker's node, so they are built again
                self._taken.discard(pending.slot)
                self._todo.append(pending)
                return None
            failed = [(facts.candidate, Stage.LOAD) for facts in pending.facts.values()]
            self._end(pending)
        elif isinstance(call, BuildCall):
            self._compiling -= 1
            pending.building -= 1
            if not given_up:
                pending.unbuilt.extendleft(reversed(call.candidates))
                self._unbuilt[pending] = None
                return None
            failed = [(candidate, Stage.BUILD) for candidate in call.candidates]
            self._settle(pending)
        else:
            self._compiling -= 1
            self._close(pending)
            if not given_up:
                self._taken.discard(pending.slot)
                self._todo.appendleft(pending)
                return None
            failed = [(refused_candidate(engine), Stage.PROPOSE) for engine in pending.engines]
            self._end(pending)
        failures = [Failure(candidate, Status.FAILED, stage, reason) for candidate, stage in failed]
        return self._finish(pending, tuple(Outcome.of(f) for f in failures))

    def _open_next(self) -> Pending | None:
        """Take the next problem in hand, if the burst has room and none of its twins is in hand."""
        if not self._has_room():
            return None
        pending = next((p for p in self._todo if p.slot not in self._taken), None)
        if pending is not None:
            self._todo.remove(pending)
            self._open[pending] = None
            self._take_up(pending)
            self._taken.add(pending.slot)
        return pending

    def _has_room(self) -> bool:
        """Whether the burst may take in another problem."""
        problems, candidates = self._most
        return len(self._in_hand) < problems and self._candidates < candidates

    def _take_up(self, pending: Pending) -> None:
        """Count the candidates of a problem in hand, perhaps anew."""
        self._candidates += len(pending.candidates) - self._in_hand.get(pending, 0)
        self._in_hand[pending] = len(pending.candidates)

    def _put_down(self, pending: Pending) -> None:
        self._candidates -= self._in_hand.pop(pending)

    def _start_building(self, pending: Pending) -> None:
        """Queue what the store lacks, and if that is anything, the anchors to race it against."""
        pending.candidates = self.unfinished(pending.task, pending.candidates)
        pending.start_building()
        self._take_up(pending)
        if pending.unbuilt:
            self._unbuilt[pending] = None
        self._settle(pending)

    def _finish(self, pending: Pending, outcomes: tuple[Outcome, ...]) -> Finished:
        """Rows of a call; and what they mean for twins of the problem that still wait."""
        key_of = self._keys(pending.task)
        self._finished.update(key_of(outcome.candidate.key) for outcome in outcomes)
        measured = [outcome for outcome in outcomes if outcome.measurement is not None]
        if measured:
            for twin in self._twins.get(pending.slot, ()):
                twin.remember(measured)
        return Finished(pending.task, outcomes, pending.facts)

    def unfinished(self, task: Task, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Candidates of a task that the store has no trial of."""
        key_of = self._keys(task)
        return tuple(c for c in candidates if key_of(c.key) not in self._finished)

    def _keys(self, task: Task) -> Callable[[str], str]:
        return trial_keys(task.problem.key, self.target, task.protocol.key)

    def _may_build(self, pending: Pending, builder: int) -> bool:
        """Whether a worker may build for a problem: with dynamic shapes only the one that has the structure's cache."""
        if not pending.task.search.dynamic:
            return True
        return _number_of(pending.task.problem.structure) % self._builders == builder

    def _settle(self, pending: Pending) -> None:
        """Move a problem on if nothing is left to build: to the device if it has plans, else to its end."""
        if not pending.is_built:
            return
        if pending.plans:
            del self._open[pending]
            self._ready.append(pending)
        else:
            self._close(pending)
            self._end(pending)

    def _close(self, pending: Pending) -> None:
        del self._open[pending]
        self._put_down(pending)

    def _end(self, pending: Pending) -> None:
        twins = self._twins[pending.slot]
        twins.remove(pending)  # and nothing holds it any more: a long sweep must not grow
        if not twins:
            del self._twins[pending.slot]
        self._taken.discard(pending.slot)
        self.done += 1


@cache
def _number_of(structure: str) -> int:
    return int(content_key("structure", {"s": structure}), 16)
