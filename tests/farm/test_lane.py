"""The lane as a machine: whatever the workers answer, in whatever order, every candidate ends with one row."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefarm.farm.lane import MAX_LOSSES, BuildCall, Call, Lane, MeasureCall, Pending, Phase, ProposeCall
from tunefarm.farm.messages import BuildReport, MeasureReport, PlanFacts, ProposeReport
from tunefarm.model.candidate import Candidate, Proposal
from tunefarm.model.job import Search, Task
from tunefarm.model.trial import Failure, Measurement, Outcome, Stage, Standing, Status, trial_key
from tunefarm.ops.matmul import MatmulProblem

TARGET = "target"


def task(size: int, *, dynamic: bool = False) -> Task:
    return Task(f"mm{size}", MatmulProblem(m=8 * size, n=8, k=8), Search(dynamic=dynamic))


def candidates(count: int) -> tuple[Candidate, ...]:
    return tuple(Candidate("cudnn", f"eng{i}", i) for i in range(count))


class Simulation:
    """Runs a lane with workers that answer in random order, fail builds and get lost."""

    def __init__(
        self, tasks: list[Task], builders: int, measurers: int, *, seed: int, loss: float, failing: float = 0.3
    ) -> None:
        self.failing = failing
        self.more: dict[Task, int] = {}
        self.random = random.Random(seed)
        self.loss = loss
        self.lane = Lane(TARGET, [Pending(t, ("cudnn",)) for t in tasks], set(), builders)
        self.builders, self.measurers = list(range(builders)), list(range(measurers))
        self.under_way: list[tuple[Call, list[int], int]] = []
        self.rows: Counter[tuple[str, str]] = Counter()
        self.built_by: dict[str, set[int]] = {}

    def run(self, count: dict[str, int]) -> None:
        for _ in range(100_000):
            if self.lane.is_done:
                return
            self.lane.turn()
            self.hand_out()
            measuring = any(isinstance(c, MeasureCall) for c, _, _ in self.under_way)
            assert not (measuring and any(not isinstance(c, MeasureCall) for c, _, _ in self.under_way))
            assert self.under_way, "nothing under way and not done: stuck"
            call, pool, worker = self.under_way.pop(self.random.randrange(len(self.under_way)))
            pool.append(worker)
            self.answer(call, count)
        raise AssertionError("no end")

    def hand_out(self) -> None:
        for pool, next_call in ((self.builders, self.lane.next_for_builder), (self.measurers, None)):
            for worker in list(pool):
                call: Call | None = next_call(worker) if next_call else self.lane.next_for_measurer()
                if call is not None:
                    pool.remove(worker)
                    self.under_way.append((call, pool, worker))
                    if isinstance(call, BuildCall):
                        self.built_by.setdefault(call.pending.task.name, set()).add(worker)

    def answer(self, call: Call, count: dict[str, int]) -> None:
        name = call.pending.task.name
        if self.random.random() < self.loss:
            finished = self.lane.lost(call, "gone")
            if finished is None:
                return
        elif isinstance(call, ProposeCall):
            number = count[name] + self.more.get(call.pending.task, 0)
            proposal = Proposal("cudnn", candidates(number), None if number else "unsupported")
            finished = self.lane.proposed(call, ProposeReport((proposal,)))
        elif isinstance(call, BuildCall):
            failed = [c for c in call.candidates if self.random.random() < self.failing]
            built = [c for c in call.candidates if c not in failed]
            report = BuildReport(
                tuple(PlanFacts(c, "d", 1, 0, 1.0, ()) for c in built),
                tuple(Failure(c, Status.CRASHED, Stage.BUILD, "x") for c in failed),
            )
            finished = self.lane.built(call, report, tuple(built))
        else:
            plans = [c for batch in call.pending.plans for c in batch]
            times = Measurement(1.0, 1.0, 1.0, "wall", ())
            outcomes = tuple(
                Outcome(
                    c,
                    Status.MEASURED,
                    Stage.TIME,
                    measurement=times,
                    standing=Standing.WON if c.name == "eng0" else Standing.SLOWER,
                )
                for c in plans
            )
            finished = self.lane.measured(call, MeasureReport(outcomes))
        self.rows.update((name, outcome.candidate.name) for outcome in finished.outcomes)


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    builders=st.integers(1, 6),
    measurers=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_candidate_has_one_row_and_every_problem_ends_once(
    counts: list[int], builders: int, measurers: int, seed: int
) -> None:
    tasks = [task(i + 1) for i in range(len(counts))]
    count = {t.name: n for t, n in zip(tasks, counts, strict=True)}
    simulation = Simulation(tasks, builders, measurers, seed=seed, loss=0.0)
    simulation.run(count)
    expected = {(n, c.name) for n, k in count.items() for c in candidates(k)}
    expected |= {(n, "(none)") for n, k in count.items() if not k}
    assert simulation.rows == Counter(dict.fromkeys(expected, 1))
    assert simulation.lane.done == len(tasks)


@settings(max_examples=100, deadline=None)
@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=20), seed=st.integers(0, 2**32))
def test_lost_workers_neither_lose_a_problem_nor_keep_it_for_ever(counts: list[int], seed: int) -> None:
    tasks = [task(i + 1) for i in range(len(counts))]
    simulation = Simulation(tasks, 3, 2, seed=seed, loss=0.3)
    simulation.run({t.name: n for t, n in zip(tasks, counts, strict=True)})
    assert simulation.lane.done == len(tasks)
    assert all(simulation.rows[t.name, "eng0"] or simulation.rows[t.name, "(none)"] for t in tasks)


def test_a_problem_is_given_up_after_its_third_lost_worker_with_the_reason() -> None:
    lane = Lane(TARGET, [Pending(task(1), ("cudnn",))], set(), 1)
    finished = None
    for _ in range(MAX_LOSSES):
        assert finished is None
        call = lane.next_for_builder(0)
        assert call is not None
        finished = lane.lost(call, "node died")
    assert finished is not None
    assert lane.done == 1
    assert [(o.status, o.reason) for o in finished.outcomes] == [(Status.FAILED, "node died")]
    assert lane.is_done


def test_dynamic_shapes_of_one_structure_keep_to_one_worker() -> None:
    tasks = [task(i + 1, dynamic=True) for i in range(8)]
    simulation = Simulation(tasks, 4, 1, seed=1, loss=0.0)
    simulation.run(dict.fromkeys((t.name for t in tasks), 9))
    workers = [frozenset(w) for w in simulation.built_by.values()]
    assert len(set(workers)) == 1
    assert len(workers[0]) == 1


@pytest.mark.parametrize("finished_count", [0, 3, 5])
def test_only_what_the_store_lacks_is_built(finished_count: int) -> None:
    t = task(1)
    known = candidates(5)[:finished_count]
    finished = {trial_key(t.problem.key, TARGET, c.key, t.protocol.key) for c in known}
    lane = Lane(TARGET, [Pending(t, ("cudnn",))], finished, 1)
    call = lane.next_for_builder(0)
    assert isinstance(call, ProposeCall)
    lane.proposed(call, ProposeReport((Proposal("cudnn", candidates(5)),)))
    assert lane.done == (finished_count == 5)
    built: list[Candidate] = []
    while isinstance(build := lane.next_for_builder(0), BuildCall):
        built.extend(build.candidates)
    assert built == list(candidates(5)[finished_count:])


def test_compiling_and_timing_alternate() -> None:
    lane = Lane(TARGET, [Pending(task(1), (), candidates(1))], set(), 1)
    call = lane.next_for_builder(0)
    assert isinstance(call, BuildCall)
    lane.turn()
    phases = [lane.phase]
    facts = PlanFacts(call.candidates[0], "d", 1, 0, 1.0, ())
    lane.built(call, BuildReport((facts,), ()), ("plan",))
    assert lane.next_for_measurer() is None
    lane.turn()
    phases.append(lane.phase)
    assert phases == [Phase.COMPILE, Phase.MEASURE]
    measure = lane.next_for_measurer()
    assert measure is not None
    assert lane.next_for_builder(0) is None


def test_tasks_that_differ_in_their_search_alone_share_candidates_and_race_again_only_what_is_new() -> None:
    plain, dynamic = task(1), task(1, dynamic=True)
    simulation = Simulation([plain, dynamic], 4, 2, seed=3, loss=0.0, failing=0.0)
    simulation.more = {dynamic: 3}
    simulation.run({plain.name: 5})
    names = [c.name for c in candidates(8)]
    # The winner races once more beside the three that only the second proposes.
    assert simulation.rows == Counter({(plain.name, name): 1 + (name == "eng0") for name in names})
    assert simulation.lane.done == 2
