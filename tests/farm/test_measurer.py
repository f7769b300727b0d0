import os
from collections.abc import Iterator

import pytest

from tests.farm import planted
from tunefarm.farm.measurer import Measurer
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Protocol
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.ops.matmul import MatmulProblem

PROBLEM = MatmulProblem(m=32, n=32, k=32)
PROTOCOL = Protocol(max_rounds=3)
EXPECTED = {
    "load-segfault": (Status.CRASHED, "SIGSEGV"),
    "load-exit": (Status.CRASHED, None),
    "load-hang": (Status.TIMED_OUT, None),
    "load-raise": (Status.FAILED, None),
    "load-decline": (Status.DECLINED, None),
    "run-segfault": (Status.CRASHED, "SIGSEGV"),
    "run-exit": (Status.CRASHED, None),
    "run-hang": (Status.TIMED_OUT, None),
    "run-raise": (Status.FAILED, None),
    "run-wrong": (Status.WRONG, None),
    "right": (Status.MEASURED, None),
    "slow": (Status.MEASURED, None),
}


@pytest.fixture
def measurer() -> Iterator[Measurer]:
    made = Measurer({"CUDA_VISIBLE_DEVICES": ""}, "here", deadline_s=3.0)
    yield made
    made.close()


def plans(*names: str) -> tuple[Plan, ...]:
    return tuple(Plan(Candidate(planted.NAME, name), name.encode(), 0, 1.0) for name in names)


def test_every_bad_plan_is_an_outcome_and_the_right_ones_are_measured(measurer: Measurer) -> None:
    names = list(EXPECTED)
    report = measurer.measure(PROBLEM, PROTOCOL, None, plans(*names[:5]), plans(*names[5:]))
    assert [o.candidate.name for o in report.outcomes] == names
    assert {o.candidate.name: (o.status, o.signal) for o in report.outcomes} == EXPECTED
    winner = next(o for o in report.outcomes if o.standing is Standing.WON)
    assert winner.candidate.name == "right"
    assert [p.candidate.name for p in report.keep] == ["right"]


def test_a_problem_whose_plans_all_die_ends_with_a_row_each(measurer: Measurer) -> None:
    report = measurer.measure(PROBLEM, PROTOCOL, None, plans("load-segfault", "run-segfault"))
    assert [o.status for o in report.outcomes] == [Status.CRASHED, Status.CRASHED]
    assert report.keep == ()


def test_the_time_of_each_stage_is_told_also_of_plans_that_hang(measurer: Measurer) -> None:
    report = measurer.measure(PROBLEM, PROTOCOL, None, plans("load-hang", "right"))
    assert set(report.seconds) == {Stage.REFERENCE, Stage.LOAD, Stage.VERIFY, Stage.TIME}
    assert report.seconds[Stage.LOAD] >= 3.0, "until its deadline"
    assert all(seconds > 0 for seconds in report.seconds.values())


def test_of_twins_one_races_and_the_others_say_whose_they_are(measurer: Measurer) -> None:
    twins = [Plan(Candidate(planted.NAME, name), b"right", 0, 1.0, kernels="same") for name in ("right", "also-right")]
    report = measurer.measure(PROBLEM, PROTOCOL, None, (twins[0], twins[1]))
    assert [o.status for o in report.outcomes] == [Status.MEASURED, Status.DECLINED]
    assert report.outcomes[1].reason == f"the same kernels as {planted.NAME}:right, which races for both"


def test_it_describes_the_cpu_where_no_gpu_is_visible(measurer: Measurer) -> None:
    facts = measurer.describe()
    assert facts.target.kind == "cpu"
    assert facts.target.device
    assert facts.worker.startswith(os.uname().nodename)
    assert facts.node == "here"
