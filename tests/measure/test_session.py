"""The session as the farm calls it: real engines, on this machine's CPU."""

import pickle
import subprocess
import sys

import pytest
import torch

from tunefarm.engines import make_engine
from tunefarm.measure.session import DevicePoisonedError, Entered, Event, measure_problem
from tunefarm.model.candidate import Plan
from tunefarm.model.dtypes import DType
from tunefarm.model.job import Cache, Protocol, Search
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what the CPU does")


def torch_plans(problem: Problem) -> tuple[Plan, ...]:
    engine = make_engine("torch")
    proposal = engine.propose(problem, Search(compile=False))
    return tuple(engine.build(problem, candidate) for candidate in proposal.candidates)


@on_cpu
@pytest.mark.parametrize("cache", Cache)
@pytest.mark.parametrize(
    "problem",
    [
        MatmulProblem(m=64, n=64, k=64, bias=True),
        ConvProblem(in_channels=8, height=12, out_channels=16, kernel=3, dtype=DType.FLOAT32),
        SdpaProblem(heads_q=2, seq_q=64, head_dim=32, mask=Mask.CAUSAL),
    ],
    ids=lambda p: p.op,
)
def test_torch_s_candidates_are_measured_on_the_cpu(problem: Problem, cache: Cache) -> None:
    events: list[Event] = []
    plans = torch_plans(problem)
    outcomes = measure_problem(problem, plans, Protocol(cache=cache, max_rounds=5), events.append)
    assert [o.candidate for o in outcomes] == [p.candidate for p in plans]
    assert sum(o.standing is Standing.WON for o in outcomes) == 1
    for outcome in outcomes:
        if outcome.status is Status.DECLINED:  # a backend that this CPU lacks
            assert outcome.stage is Stage.LOAD
            continue
        assert outcome.status is Status.MEASURED
        assert outcome.measurement is not None
        assert outcome.measurement.method == "wall"
        assert outcome.measurement.time_us > 0
        assert outcome.measurement.first_call_ms > 0
        assert outcome.measurement.replay_us is None
    assert isinstance(events[0], Entered)
    assert events[0].candidate is None
    assert pickle.loads(pickle.dumps(outcomes)) == outcomes


def test_the_module_of_events_is_light() -> None:
    code = "import sys, tunefarm.measure.session; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_lost_device_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(DevicePoisonedError("cafe", Stage.VERIFY, "illegal address")))
    assert (error.candidate, error.stage, error.reason) == ("cafe", Stage.VERIFY, "illegal address")
    assert str(error) == "the device is lost after candidate cafe at stage verify: illegal address"
