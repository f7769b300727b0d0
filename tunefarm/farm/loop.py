"""The sweep loop: a state machine over calls under way, that writes what it learns as it goes."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tunefarm.farm.executor import Building, Executor, Measuring, Ticket, Worker, WorkerLostError
from tunefarm.farm.interrupt import Interrupt
from tunefarm.farm.journal import StartJournal
from tunefarm.farm.lane import BuildCall, Call, Finished, Lane, MeasureCall, ProposeCall
from tunefarm.farm.messages import MeasureReport, ProposeReport
from tunefarm.farm.phases import PhaseShares
from tunefarm.farm.recorder import Recorder
from tunefarm.farm.resume import plan_lane
from tunefarm.farm.roster import Roster
from tunefarm.farm.site import Site
from tunefarm.farm.suspects import alone, call_starts, withhold
from tunefarm.farm.tally import Tally
from tunefarm.model.errors import FarmError
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


@dataclass
class _UnderWay:
    site: Site
    worker: Worker
    call: Call
    deadline: float


class SweepLoop:
    """One run: the calls under way and what they need."""

    def __init__(
        self,
        sweep: str,
        job: Job,
        store: Store,
        *,
        executor: Executor,
        builders: int | None,
        retry: Collection[Status],
        tally: Tally,
        roster: Roster,
        interrupt: Interrupt,
        journal: StartJournal | None,
    ) -> None:
        """Nothing is done before `run`.

        Args:
            sweep: its id.
            job: what is to be tuned.
            store: where to keep it.
            executor: where workers live; already started.
            builders: compiling workers of each target; None for every core that measuring workers don't need.
            retry: candidates whose stored trial ended so are tried again.
            tally: told of all that happens.
            roster: told what each measuring worker does.
            interrupt: asked whether to stop.
            journal: where starts are written down, if anywhere.
        """
        self._job = job
        self._store = store
        self._executor = executor
        self._builders = builders
        self._retry = retry
        self._interrupt = interrupt
        self._journal = journal
        self._done = 0
        self._under_way: dict[Ticket, _UnderWay] = {}
        self._losses: dict[Worker, int] = {}
        self._deadlines_at = 0.0
        self._tally = tally
        self._roster = roster
        self._recorder = Recorder(store, sweep, job.name)
        self._sites: list[Site] = []
        self.already_done = 0
        """Problems that needed no work, on all targets."""

    def run(self, measurers: Sequence[Measuring]) -> None:
        """Until nothing is left, or a signal says so.

        Raises:
            FarmError: a worker is lost again and again.
            StoreError: results can't be written.
        """
        by_target: dict[str, list[Measuring]] = {}
        for worker in measurers:
            self._roster.joined(worker)
            by_target.setdefault(worker.facts.target.key, []).append(worker)
        for workers in by_target.values():
            site, done = self._site(workers)
            self._sites.append(site)
            self.already_done += done
        self._tally.start(len(self._job.tasks) * len(self._sites), self.already_done)
        try:
            self._loop(self._sites)
            self._done = sum(site.lane.done for site in self._sites)
            if self._journal is not None and self._interrupt.signal is None:
                self._meet_suspects(self._journal)
        finally:
            self._recorder.flush()

    @property
    def targets(self) -> tuple[Target, ...]:
        """What the farm's devices are."""
        return tuple(site.target for site in self._sites)

    @property
    def trials_written(self) -> int:
        """Trials that this run has published."""
        return self._recorder.written

    @property
    def phases(self) -> tuple[PhaseShares, ...]:
        """How the time was spent, for each target that had work."""
        return tuple(site.clock.shares for site in self._sites if site.builders)

    def _site(self, workers: list[Measuring]) -> tuple[Site, int]:
        target = workers[0].facts.target
        self._store.put_target(target)
        pending, finished = plan_lane(self._job.tasks, target, self._store, self._retry)
        suspects = self._journal.suspects() if self._journal is not None else set()
        withhold(pending, target.key, suspects)
        builders: list[Building] = []
        if pending:
            builders = self._executor.add_builders(workers, self._builders)
        self._tally.proposed(sum(len(p.candidates) for p in pending))
        lane = Lane(target.key, pending, finished | suspects, len(builders), len(workers))
        numbers = {builder: number for number, builder in enumerate(builders)}
        site = Site(target, lane, workers, numbers, {*workers}, {*builders})
        return site, len(self._job.tasks) - len(pending)

    def _meet_suspects(self, journal: StartJournal) -> None:
        """Do last and alone what was started by drivers that died before it ended."""
        suspects = journal.suspects()
        if not suspects:
            return
        self._recorder.flush()  # what engines proposed in this run is planned from the store
        for site in self._sites:
            key = site.target.key
            pending, finished = plan_lane(self._job.tasks, site.target, self._store, self._retry)
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

    def _loop(self, sites: Sequence[Site]) -> None:
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

    def _hand_out(self, site: Site) -> None:
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

    def _take_in(self, sites: Sequence[Site]) -> None:
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
