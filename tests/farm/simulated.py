"""A farm whose workers are arithmetic: calls take virtual time, answers look like a GPU's. The driver is real."""

import hashlib
import heapq
import random
import time
from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any

from tunefarm.farm.executor import Building, Executor, Measuring, Ticket, Worker, WorkerLostError
from tunefarm.farm.messages import BuildReport, MeasureReport, PlanFacts, ProposeReport, WorkerFacts
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.job import Job, Protocol, Search, Task
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.model.trial import (
    FIRST_FRESH_ROUND,
    Block,
    Failure,
    Measurement,
    Outcome,
    OutputError,
    Stage,
    Standing,
    Status,
    Verdict,
)
from tunefarm.ops.matmul import MatmulProblem

H200 = Target("cuda", "NVIDIA H200", "9.0", "9.27.0", "1.32.0", "2.13.0", "13.0", "")
RIGHT = Verdict(True, "", (OutputError("y", 1.6e-3, 1.7e-3, 1.0, 1e-5),))
BUILD_S = 0.35
"""Virtual seconds of a build, on the average."""
RACE_S = 1.0
"""Virtual seconds of a race, and of a candidate in it `RACE_S / 100`."""
FINALISTS = 4
RACED = 30


def make_job(problems: int) -> Job:
    """Products of different sizes, each its own problem."""
    tasks = (
        Task(f"mm{i}", MatmulProblem(m=16 * (1 + i % 128), n=64 * (1 + i // 128), k=4096), Search(engines=("cudnn",)))
        for i in range(problems)
    )
    return Job("simulated", "simulated.yaml", tuple(tasks))


class SimulatedFarm(Executor):
    """Measuring and compiling workers of one target, on a virtual clock.

    Args:
        gpus: measuring workers.
        candidates: of each problem.
        plan_bytes: size of a kept plan.
        lose: chance that a call loses its worker.
        lose_measures: measuring calls, counted from 1, that lose theirs.
        seed: of everything that is random.
    """

    def __init__(
        self,
        gpus: int,
        candidates: int,
        *,
        plan_bytes: int = 8192,
        lose: float = 0.0,
        lose_measures: Collection[int] = (),
        seed: int = 0,
    ) -> None:
        self.gpus, self.candidates, self.lose, self.lose_measures = gpus, candidates, lose, lose_measures
        self.random = random.Random(seed)
        self.now = 0.0
        """Virtual seconds."""
        self.own_s = 0.0
        """Seconds of CPU spent in here: what the driver's cost is less."""
        self.busy_s = {"measure": 0.0, "build": 0.0, "propose": 0.0}
        """Virtual seconds of work, over all workers."""
        self.calls = 0
        self.losses = self.measures = 0
        self.builders = 0
        self._due: list[tuple[float, int]] = []
        self._numbers = count()
        self._answers: dict[int, Callable[[], Any]] = {}
        self._plans: dict[int, tuple[PlanFacts, ...]] = {}
        self._filler = self.random.randbytes(plan_bytes // 4) * 4  # packs to about a quarter, as cuDNN's plans do

    def start(self, check: Callable[[], None]) -> list[Measuring]:
        check()
        return [Measuring(i, WorkerFacts(H200, f"GPU-{i:04}", str(i % 8), f"node{i // 8}")) for i in range(self.gpus)]

    def add_builders(self, target_workers: Sequence[Measuring], count: int | None) -> list[Building]:
        self.builders = count or 4 * len(target_workers)
        return [Building(i, {}, f"node{i // 32}") for i in range(self.builders)]

    def call(self, worker: Worker, method: str, *args: Any) -> Ticket:
        began = time.process_time()
        ticket = next(self._numbers)
        takes_s, answer = getattr(self, f"_{method}")(ticket, *args)
        self.measures += method == "measure"
        if (self.lose and self.random.random() < self.lose) or (
            method == "measure" and self.measures in self.lose_measures
        ):
            answer = _lost
        self.busy_s[method] += takes_s
        self.calls += 1
        self._answers[ticket] = answer
        heapq.heappush(self._due, (self.now + takes_s, ticket))
        self.own_s += time.process_time() - began
        return ticket

    def wait(self, tickets: Sequence[Ticket], timeout_s: float) -> list[Ticket]:
        """The next that are due, within a virtual millisecond of each other."""
        began = time.process_time()
        done: list[Ticket] = []
        if self._due:
            self.now = self._due[0][0]
            while self._due and self._due[0][0] <= self.now + 1e-3:
                done.append(heapq.heappop(self._due)[1])
        self.own_s += time.process_time() - began
        return done

    def result(self, ticket: Ticket) -> Any:
        assert isinstance(ticket, int)
        began = time.process_time()
        try:
            return self._answers.pop(ticket)()
        finally:
            self.own_s += time.process_time() - began

    def plans_of(self, ticket: Ticket) -> Any:
        return ticket

    def replace(self, worker: Worker) -> None:
        self.losses += 1

    def close(self) -> None:
        self._due.clear()

    def _propose(self, _ticket: int, problem: Problem, search: Search, engines: Sequence[str]) -> "_Call":
        return 0.05, lambda: ProposeReport((Proposal("cudnn", tuple(map(make_candidate, range(self.candidates)))),))

    def _build(self, ticket: int, problem: Problem, candidates: Sequence[Candidate]) -> "_Call":
        def answer() -> BuildReport:
            refused = [candidate for candidate in candidates if candidate.rank % 33 == 32]
            built = tuple(facts_of(problem, candidate) for candidate in candidates if candidate not in refused)
            self._plans[ticket] = built
            reason = "CUDNN_STATUS_NOT_SUPPORTED: the engine does not take these strides"
            failures = (Failure(candidate, Status.DECLINED, Stage.BUILD, reason) for candidate in refused)
            return BuildReport(built, tuple(failures))

        return BUILD_S * len(candidates) * self.random.uniform(0.5, 1.5), answer

    def _measure(
        self, _ticket: int, problem: Problem, protocol: Protocol, incumbent: str | None, *batches: int
    ) -> "_Call":
        facts = sorted(
            (fact for batch in batches for fact in self._plans.pop(batch)), key=lambda fact: fact.candidate.rank
        )

        def answer() -> MeasureReport:
            best = random.Random(problem.key).uniform(20.0, 200.0)
            outcomes = tuple(self._outcome(fact.candidate, place, best) for place, fact in enumerate(facts))
            winners = facts[: FINALISTS - 1]
            keep = (Plan(f.candidate, f"{problem.key}{f.digest}".encode() + self._filler, 4096, 340.0) for f in winners)
            timing = RACE_S * len(facts) / 100
            return MeasureReport(outcomes, tuple(keep), {Stage.LOAD: timing / 4, Stage.TIME: timing})

        return RACE_S * len(facts) / 80 * self.random.uniform(0.7, 1.3), answer

    def _outcome(self, candidate: Candidate, place: int, best: float) -> Outcome:
        if place % 50 == 49:
            return Outcome(candidate, Status.WRONG, Stage.VERIFY, "y: relative l2 error 0.31 is over 0.02")
        if place % 100 == 90:
            reason = "its process died of SIGSEGV"
            return Outcome(candidate, Status.CRASHED, Stage.LOAD, reason, "SIGSEGV")
        us = best * (1.0 + 0.01 * place)
        rounds: list[int] = [-1] * 3
        standing, why = Standing.SCREENED, "its first launches were 40 % slower than the best"
        if place < RACED:
            rounds += range(15)
            standing, why = Standing.SLOWER, f"{place}.0 % slower than cudnn:eng0_k2=0_k6=0"
        if place < FINALISTS:
            rounds += range(FIRST_FRESH_ROUND, FIRST_FRESH_ROUND + 15)
            standing = Standing.TIED if place else Standing.WON
        blocks = tuple(Block(number, 40, us * self.random.uniform(0.99, 1.02)) for number in rounds)
        measurement = Measurement(us, us * 0.995, us * 1.005, "graph", blocks, 2.1, 0.08)
        return Outcome(candidate, Status.MEASURED, Stage.TIME, "", None, RIGHT, measurement, standing, why)


_Call = tuple[float, Callable[[], Any]]
"""Virtual seconds of a call, and what makes its answer."""


def make_candidate(rank: int) -> Candidate:
    """A candidate as cuDNN's are. A new one each time: real ones come out of messages."""
    knobs = (("CTA_SPLIT_K_MODE", rank % 7), ("TILE_SIZE", rank))
    return Candidate("cudnn", f"eng{rank % 12}_k2={rank % 7}_k6={rank}", rank % 12, knobs, proposed_by="A", rank=rank)


def facts_of(problem: Problem, candidate: Candidate) -> PlanFacts:
    """Facts of a plan of about the size that cuDNN's have."""
    digest = hashlib.sha256(f"{problem.key} {candidate.name}".encode()).hexdigest()
    return PlanFacts(candidate, digest, 26_000, 4096, 340.0, candidate.knobs)


def _lost() -> None:
    raise WorkerLostError("its simulated node went away")
