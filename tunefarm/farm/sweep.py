"""The sweep loop: a state machine over calls under way, that writes what it learns as it goes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tunefarm.farm.bulletin import Bulletin
from tunefarm.farm.executor import Building, Executor, Measuring, Ticket, Worker, WorkerLostError
from tunefarm.farm.inline import InlineExecutor
from tunefarm.farm.interrupt import Interrupt, InterruptedStartError
from tunefarm.farm.journal import StartJournal
from tunefarm.farm.lane import BuildCall, Call, Finished, Lane, MeasureCall, ProposeCall
from tunefarm.farm.messages import MeasureReport, ProposeReport
from tunefarm.farm.metrics import RayMetrics
from tunefarm.farm.phases import PhaseClock, PhaseShares
from tunefarm.farm.progress import Progress
from tunefarm.farm.ray_executor import RayExecutor
from tunefarm.farm.recorder import Recorder
from tunefarm.farm.resume import plan_lane
from tunefarm.farm.roster import Roster, WorkerState
from tunefarm.farm.status import Ended
from tunefarm.farm.suspects import alone, call_starts, withhold
from tunefarm.farm.tally import Tally
from tunefarm.model.errors import FarmError, TunefarmError
from tunefarm.model.job import Job
from tunefarm.model.target import Target
from tunefarm.model.trial import Status
from tunefarm.store import Store

WAIT_S = 0.25
"""Longest sleep of the loop: how late it notices a deadline or an interrupt."""
MAX_WORKER_LOSSES = 3
"""A worker lost so often in a row has a cause that a new one won't cure."""
CALL_SLACK_S = 60.0
PROPOSE_CALL_S = 60.0
BUILD_CALL_S = 60.0
MEASURE_CALL_S = 300.0
"""Seconds an engine, a candidate, a plan: the driver's own deadlines, beyond those that workers keep. Only a worker
that never answers gets there."""


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep is to run."""

    executor: str = "ray"
    """`ray`, or `inline` for one device without Ray."""
    address: str | None = None
    """Address of a running Ray cluster; None starts Ray on this machine."""
    builders: int | None = None
    """Compiling workers; None for every core that measuring workers don't need."""
    deadline_s: float | None = None
    """Bound on any one step of a candidate: a build, a load, a verification, a timed block. None: generous defaults."""
    retry: tuple[Status, ...] = ()
    """Candidates whose stored trial ended so are tried again."""
    journal: Path | None = None
    """Folder on a local disk where starts are written down; None: work that kills the driver is met for ever."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did."""

    sweep: str
    interrupted: int | None
    """Number of the signal that ended it early, if one did."""
    targets: tuple[Target, ...]
    problems: int
    already_done: int
    """Problems that needed no work: the store had them."""
    trials_written: int
    phases: tuple[PhaseShares, ...] = ()
    """How the time was spent, for each target that had work."""
    workers: tuple[WorkerState, ...] = ()
    """What each measuring worker did with its time."""


@dataclass
class _Site:
    """A lane with its workers. A worker has at most one call."""

    target: Target
    lane: Lane
    measurers: Sequence[Measuring]
    builders: Mapping[Building, int]
    """Each with its number in the lane."""
    idle_measurers: set[Measuring]
    idle_builders: set[Building]
    clock: PhaseClock = field(default_factory=PhaseClock)

    def look(self) -> None:
        """Account for the time that passed."""
        builders = len(self.builders) - len(self.idle_builders), len(self.builders)
        measurers = len(self.measurers) - len(self.idle_measurers), len(self.measurers)
        self.clock.look(self.lane.phase, builders, measurers)

    def rest(self, worker: Worker) -> None:
        """A worker has no work any more."""
        if isinstance(worker, Measuring):
            self.idle_measurers.add(worker)
        else:
            self.idle_builders.add(worker)


@dataclass
class _UnderWay:
    site: _Site
    worker: Worker
    call: Call
    deadline: float


def run_sweep(
    job: Job, store: Store, options: SweepOptions, progress: Progress, executor: Executor | None = None
) -> SweepResult:
    """Find the fastest right plan of every task of a job, on every target that the farm has.

    What the store has already is not done again. Everything learnt is appended as it comes.

    Args:
        job: what is to be tuned.
        store: where to keep it.
        options: how to go about it.
        progress: who is told.
        executor: where workers live; None for the one that the options name. It is closed at the end.

    Raises:
        FarmError: the farm can't be brought up, or a worker is lost again and again.
        StoreError: results can't be written.
    """
    if executor is None:
        executor = (
            InlineExecutor(options.deadline_s)
            if options.executor == "inline"
            else RayExecutor(options.address, options.deadline_s)
        )
    sweep = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    roster = Roster()
    bulletin = Bulletin(store, sweep, job.name, roster)
    watchers: list[Progress] = [progress, bulletin]
    if isinstance(executor, RayExecutor):
        watchers.append(RayMetrics(job.name, roster))
    tally = Tally(sweep, job.name, watchers)
    ended, reason = Ended.FAILED, ""
    with Interrupt() as interrupt:
        try:
            bulletin.open()
            tally.phase("starting workers")
            measurers = executor.start(interrupt.check)
            with ExitStack() as stack:
                journal = stack.enter_context(closing(StartJournal(options.journal))) if options.journal else None
                loop = _Sweep(
                    sweep,
                    job,
                    store,
                    options,
                    executor=executor,
                    tally=tally,
                    roster=roster,
                    interrupt=interrupt,
                    journal=journal,
                )
                result = loop.run(measurers)
            ended = Ended.FINISHED if result.interrupted is None else Ended.INTERRUPTED
        except (InterruptedStartError, KeyboardInterrupt) as error:
            ended = Ended.INTERRUPTED
            if isinstance(error, KeyboardInterrupt):
                raise
            return SweepResult("", interrupt.signal, (), 0, 0, 0)
        except TunefarmError as error:
            reason = str(error)
            raise
        finally:
            tally.ended(ended, reason)
            bulletin.close(ended)
            executor.close()
    return result


class _Sweep:
    """One run: the calls under way and what they need."""

    def __init__(
        self,
        sweep: str,
        job: Job,
        store: Store,
        options: SweepOptions,
        *,
        executor: Executor,
        tally: Tally,
        roster: Roster,
        interrupt: Interrupt,
        journal: StartJournal | None,
    ) -> None:
        self._id = sweep
        self._job = job
        self._store = store
        self._options = options
        self._executor = executor
        self._interrupt = interrupt
        self._journal = journal
        self._done = 0
        self._under_way: dict[Ticket, _UnderWay] = {}
        self._losses: dict[Worker, int] = {}
        self._deadlines_at = 0.0
        self._tally = tally
        self._roster = roster
        self._recorder = Recorder(store, self._id, job.name)

    def run(self, measurers: Sequence[Measuring]) -> SweepResult:
        """Until nothing is left, or a signal says so."""
        sites: list[_Site] = []
        done_before = 0
        by_target: dict[str, list[Measuring]] = {}
        for worker in measurers:
            self._roster.joined(worker)
            by_target.setdefault(worker.facts.target.key, []).append(worker)
        for workers in by_target.values():
            site, done = self._site(workers)
            sites.append(site)
            done_before += done
        self._tally.start(len(self._job.tasks) * len(sites), done_before)
        try:
            self._loop(sites)
            self._done = sum(site.lane.done for site in sites)
            if self._journal is not None and self._interrupt.signal is None:
                self._meet_suspects(self._journal, sites)
        finally:
            self._recorder.flush()
        return SweepResult(
            sweep=self._id,
            interrupted=self._interrupt.signal,
            targets=tuple(site.target for site in sites),
            problems=len(self._job.tasks) * len(sites),
            already_done=done_before,
            trials_written=self._recorder.written,
            phases=tuple(site.clock.shares for site in sites if site.builders),
            workers=self._roster.workers,
        )

    def _site(self, workers: list[Measuring]) -> tuple[_Site, int]:
        target = workers[0].facts.target
        self._store.put_target(target)
        pending, finished = plan_lane(self._job.tasks, target, self._store, self._options.retry)
        suspects = self._journal.suspects() if self._journal is not None else set()
        withhold(pending, target.key, suspects)
        builders: list[Building] = []
        if pending:
            builders = self._executor.add_builders(workers, self._options.builders)
        self._tally.proposed(sum(len(p.candidates) for p in pending))
        lane = Lane(target.key, pending, finished | suspects, len(builders), len(workers))
        numbers = {builder: number for number, builder in enumerate(builders)}
        site = _Site(target, lane, workers, numbers, {*workers}, {*builders})
        return site, len(self._job.tasks) - len(pending)

    def _meet_suspects(self, journal: StartJournal, sites: Sequence[_Site]) -> None:
        """Do last and alone what was started by drivers that died before it ended."""
        suspects = journal.suspects()
        if not suspects:
            return
        self._recorder.flush()  # what engines proposed in this run is planned from the store
        for site in sites:
            key = site.target.key
            pending, finished = plan_lane(self._job.tasks, site.target, self._store, self._options.retry)
            for trial, part in alone(pending, key, suspects, journal):
                if isinstance(part, Finished):
                    self._tally.trials(self._recorder.trials(part, key, ""))
                    self._recorder.flush()
                    journal.forget(trial)
                    continue
                site.lane = Lane(key, [part], finished, len(site.builders), len(site.measurers))
                self._loop([site])
                if self._interrupt.signal is not None:
                    return

    def _loop(self, sites: Sequence[_Site]) -> None:
        while not all(site.lane.is_done for site in sites):
            if self._interrupt.signal is None:
                for site in sites:
                    self._hand_out(site)
            elif not self._interrupt.may_wait or not self._measuring():
                return
            self._take_in(sites)
            self._tally.done(max(self._done, sum(site.lane.done for site in sites)))
            self._recorder.flush_if_due()

    def _measuring(self) -> bool:
        return any(isinstance(way.call, MeasureCall) for way in self._under_way.values())

    def _hand_out(self, site: _Site) -> None:
        site.lane.turn()
        self._tally.phase(site.lane.phase)
        calls: list[tuple[Worker, Call]] = []
        for builder in list(site.idle_builders):
            if (call := site.lane.next_for_builder(site.builders[builder])) is not None:
                site.idle_builders.remove(builder)
                calls.append((builder, call))
        while site.idle_measurers and (measuring := site.lane.next_for_measurer()) is not None:
            measurer = site.idle_measurers.pop()
            calls.append((measurer, measuring))
            self._roster.began(measurer, measuring.pending.task.name)
        if calls and self._journal is not None:
            self._journal.begin(start for _, call in calls for start in call_starts(call, site.target.key))
        for worker, begun in calls:
            ticket, allowed_s = self._send(worker, begun)
            self._under_way[ticket] = _UnderWay(site, worker, begun, time.monotonic() + allowed_s)

    def _send(self, worker: Worker, call: Call) -> tuple[Ticket, float]:
        pending = call.pending
        problem = pending.task.problem
        if isinstance(call, ProposeCall):
            ticket = self._executor.call(worker, "propose", problem, pending.task.search, pending.engines)
            return ticket, CALL_SLACK_S + PROPOSE_CALL_S * len(pending.engines)
        if isinstance(call, BuildCall):
            ticket = self._executor.call(worker, "build", problem, call.candidates)
            return ticket, CALL_SLACK_S + BUILD_CALL_S * len(call.candidates)
        ticket = self._executor.call(
            worker, "measure", problem, pending.task.protocol, pending.incumbent, *pending.plans
        )
        return ticket, CALL_SLACK_S + MEASURE_CALL_S * (1 + len(pending.facts))

    def _take_in(self, sites: Sequence[_Site]) -> None:
        if not self._under_way:
            return
        done = self._executor.wait(list(self._under_way), WAIT_S)
        for site in sites:
            site.look()  # before what is done makes its worker idle
        for ticket in done:
            way = self._under_way.pop(ticket)
            self._outlive(way)
            try:
                finished = self._absorb(way, ticket)
            except WorkerLostError as error:
                self._lose(way, str(error))
            else:
                self._losses.pop(way.worker, None)
                self._record(way, finished)
            way.site.rest(way.worker)
        now = time.monotonic()
        if now - self._deadlines_at < WAIT_S:
            return
        self._deadlines_at = now
        for ticket, way in [(t, w) for t, w in self._under_way.items() if w.deadline < now]:
            del self._under_way[ticket]
            self._outlive(way)
            self._lose(way, "it did not answer before its deadline")
            way.site.rest(way.worker)

    def _outlive(self, way: _UnderWay) -> None:
        if self._journal is not None:
            self._journal.end(call_starts(way.call, way.site.target.key))

    def _absorb(self, way: _UnderWay, ticket: Ticket) -> Finished:
        result = self._executor.result(ticket)
        if isinstance(way.call, ProposeCall):
            report: ProposeReport = result
            self._recorder.proposals(way.call.pending.task, way.site.lane.target, report.proposals)
            self._tally.proposed(sum(len(proposal.candidates) for proposal in report.proposals))
            return way.site.lane.proposed(way.call, report)
        if isinstance(way.call, BuildCall):
            self._tally.built(result)
            return way.site.lane.built(way.call, result, self._executor.plans_of(ticket))
        measured: MeasureReport = result
        assert isinstance(way.worker, Measuring)
        self._roster.answered(way.worker, measured)
        self._recorder.plans(way.call.pending.task, way.site.lane.target, measured.keep)
        return way.site.lane.measured(way.call, measured)

    def _record(self, way: _UnderWay, finished: Finished) -> None:
        worker = way.worker.facts.worker if isinstance(way.worker, Measuring) else ""
        trials = self._recorder.trials(finished, way.site.lane.target, worker)
        self._tally.trials(trials)

    def _lose(self, way: _UnderWay, reason: str) -> None:
        """Put a lost worker's work back, and another worker in its place."""
        self._losses[way.worker] = self._losses.get(way.worker, 0) + 1
        if self._losses[way.worker] > MAX_WORKER_LOSSES:
            what = "measuring" if isinstance(way.worker, Measuring) else "compiling"
            raise FarmError(f"a {what} worker was lost {MAX_WORKER_LOSSES + 1} times in a row; the last time: {reason}")
        name = way.worker.facts.worker if isinstance(way.worker, Measuring) else f"compiling on {way.worker.node}"
        self._tally.lost(name, way.call.pending.task.name, reason)
        if isinstance(way.worker, Measuring):
            self._roster.lost(way.worker)
        self._executor.replace(way.worker)
        finished = way.site.lane.lost(
            way.call, f"the worker was lost under it {self._losses[way.worker]} times: {reason}"
        )
        if finished is not None:
            self._tally.trials(self._recorder.trials(finished, way.site.lane.target, ""))
