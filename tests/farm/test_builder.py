import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.farm import planted
from tunefarm.farm.builder import Builder
from tunefarm.model.candidate import Candidate
from tunefarm.model.job import Search
from tunefarm.model.trial import Stage, Status
from tunefarm.ops.matmul import MatmulProblem

PROBLEM = MatmulProblem(m=16, n=16, k=16)
EXPECTED = {
    "build-segfault": (Status.CRASHED, "SIGSEGV"),
    "build-exit": (Status.CRASHED, None),
    "build-hang": (Status.TIMED_OUT, None),
    "build-raise": (Status.FAILED, None),
    "build-decline": (Status.DECLINED, None),
}


@pytest.fixture
def builder() -> Iterator[Builder]:
    made = Builder({"CUDA_VISIBLE_DEVICES": ""}, deadline_s=2.0)
    yield made
    made.close()


def test_a_bad_candidate_costs_itself_alone_wherever_it_stands(builder: Builder) -> None:
    candidates = builder.propose(PROBLEM, Search(), [planted.NAME]).proposals[0].candidates
    report, plans = builder.build(PROBLEM, candidates)
    failures = {f.candidate.name: (f.status, f.signal) for f in report.failures}
    assert failures == EXPECTED
    assert all(f.stage is Stage.BUILD for f in report.failures)
    assert [p.candidate for p in plans] == [c for c in candidates if c.name not in EXPECTED]
    assert [f.digest for f in report.built] == [p.digest for p in plans]


def test_an_engine_that_does_not_exist_is_a_failure_with_its_reason(builder: Builder) -> None:
    report = builder.propose(PROBLEM, Search(), ["tests.farm.planted:NoSuchEngine", planted.NAME])
    assert [p.engine for p in report.proposals] == [planted.NAME]
    (failure,) = report.failures
    assert (failure.status, failure.stage) == (Status.FAILED, Stage.PROPOSE)
    assert "NoSuchEngine" in failure.reason


def test_every_candidate_has_a_result_even_if_all_die(builder: Builder) -> None:
    candidates = [Candidate(planted.NAME, "build-segfault", rank=i, engine_id=i) for i in range(5)]
    report, plans = builder.build(PROBLEM, candidates)
    assert [f.candidate for f in report.failures] == candidates
    assert plans == ()


def test_a_candidate_is_not_blamed_for_the_fault_of_the_one_before(builder: Builder) -> None:
    candidates = [Candidate(planted.NAME, name) for name in ("build-ruin", "build-linger", "right")]
    report, plans = builder.build(PROBLEM, candidates)
    assert report.failures == ()
    assert [p.candidate for p in plans] == candidates


def test_a_kill_from_outside_costs_nobody_a_row(builder: Builder) -> None:
    def kill_soon() -> None:
        while builder._child.pid is None or not builder._child.jobs_run:
            time.sleep(0.01)
        os.kill(builder._child.pid, signal.SIGKILL)

    threading.Thread(target=kill_soon).start()
    report, plans = builder.build(PROBLEM, [Candidate(planted.NAME, "build-linger")])
    assert report.failures == ()
    assert len(plans) == 1
