"""Sessions on a real GPU: both engines, planted candidates on its tensors, and a device that gets lost."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.measure import deeds
from tests.measure.planted import Outputs, Planted, PlantedExecutable, default, hold
from tests.measure.problems import PROBLEMS
from tunefarm.engines import make_engine
from tunefarm.measure.session import Event, measure_problem
from tunefarm.model.candidate import Plan
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import Declined
from tunefarm.model.job import Cache, Protocol, Search
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Standing, Status
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

pytestmark = pytest.mark.gpu

CASES = (
    MatmulProblem(m=512, n=1024, k=512, bias=True, activation=Activation.GELU, amax=True),
    MatmulProblem(m=512, n=1024, k=512, bias=True, activation=Activation.GELU, dtype=DType.FLOAT16, transpose_b=True),
    MatmulProblem(m=16, n=4096, k=4096, dtype=DType.FLOAT32),
    ConvProblem(batch=8, in_channels=64, height=28, out_channels=128, kernel=3, padding=1, bias=True),
    ConvProblem(batch=8, in_channels=64, height=28, out_channels=128, kernel=1, stride=2, dtype=DType.FLOAT16),
    SdpaProblem(batch=2, heads_q=8, seq_q=512, head_dim=64, mask=Mask.CAUSAL, stats=True),
    SdpaProblem(batch=2, heads_q=8, heads_kv=2, seq_q=1, seq_kv=2048, head_dim=128, dtype=DType.FLOAT16),
)


def plans_of(problem: Problem) -> tuple[Plan, ...]:
    plans = []
    for name in ("cudnn", "torch"):
        engine = make_engine(name)
        for candidate in engine.propose(problem, Search(compile=False)).candidates:
            try:
                plans.append(engine.build(problem, candidate))
            except Declined:
                continue
    return tuple(plans)


@pytest.mark.cudnn
@pytest.mark.parametrize("problem", CASES, ids=lambda p: p.label)
def test_both_engines_race_and_what_users_have_is_right(problem: Problem) -> None:
    events: list[Event] = []
    plans = plans_of(problem)
    outcomes = measure_problem(problem, plans, Protocol(), events.append)
    assert sum(o.standing is Standing.WON for o in outcomes) == 1
    assert {o.measurement.method for o in outcomes if o.standing in (Standing.WON, Standing.TIED, Standing.SLOWER)} <= {
        "graph",
        "events",
    }
    for outcome in outcomes:
        if outcome.candidate.is_default or outcome.candidate.name == "eager":
            assert outcome.status is Status.MEASURED, outcome.reason
            assert outcome.measurement.eager_us > 0
    winner = next(o for o in outcomes if o.standing is Standing.WON)
    assert winner.measurement.replay_us == pytest.approx(winner.measurement.time_us, rel=0.25)


@pytest.mark.cudnn
def test_the_stored_winner_wins_again_and_hot_launches_are_no_slower() -> None:
    problem = MatmulProblem(m=256, n=4096, k=4096)
    plans = plans_of(problem)

    def winner(cache: Cache, incumbent: str | None) -> tuple[str, float]:
        outcomes = measure_problem(problem, plans, Protocol(cache=cache), lambda _: None, incumbent)
        won = next(o for o in outcomes if o.standing is Standing.WON)
        return won.candidate.key, won.measurement.time_us

    first, cold_us = winner(Cache.COLD, None)
    assert winner(Cache.COLD, first)[0] == first
    assert winner(Cache.HOT, None)[1] < 1.02 * cold_us


@pytest.mark.parametrize("problem", PROBLEMS[::2], ids=lambda p: p.label)
def test_no_wrong_candidate_passes_on_the_gpu(problem: Problem) -> None:
    wrong = [Planted(name, 5.0, deed, workspace_bytes=4000) for name, deed in deeds.WRONG.items()]
    outcomes = hold(problem, [default(), *wrong, Planted("best", 90.0)], device="cuda")
    assert [n for n, o in outcomes.items() if o.status is not Status.WRONG] == ["default", "best"]
    assert outcomes["best"].standing is Standing.WON


def test_a_candidate_that_runs_out_of_memory_fails_alone() -> None:
    @deeds.after
    def greedy(_: PlantedExecutable, __: object, ___: Outputs, ____: object) -> None:
        torch.empty(2**44, dtype=torch.uint8, device="cuda")

    problem = MatmulProblem(m=64, n=64, k=64)
    outcomes = hold(problem, [default(), Planted("greedy", deed=greedy), Planted("best", 90.0)], device="cuda")
    assert outcomes["greedy"].status is Status.FAILED
    assert outcomes["greedy"].reason.startswith("OutOfMemoryError: ")
    assert outcomes["best"].standing is Standing.WON


LOST = """
import torch
from tests.measure import deeds
from tests.measure.planted import Planted, default, hold
from tunefarm.measure.session import DevicePoisonedError
from tunefarm.ops.matmul import MatmulProblem

@deeds.after
def illegal(executable, inputs, outputs, workspace):
    torch.zeros(4, device="cuda")[torch.tensor([10**6], device="cuda")]

bad = Planted("bad", deed=illegal)
try:
    hold(MatmulProblem(m=64, n=64, k=64), [default(), bad, Planted("best")], device="cuda")
except DevicePoisonedError as lost:
    print("lost" if lost.candidate == bad.key else "lost by another", lost.stage)
"""


def test_an_illegal_access_ends_the_session_with_the_candidate_s_name() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", LOST], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lost", "verify"], done.stderr
