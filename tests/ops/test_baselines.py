import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of
from tunefarm.ops.activation import Activation
from tunefarm.ops.baselines import compiled
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

CPU = torch.device("cpu")
ATTENTION: dict[str, Any] = {"heads_q": 4, "heads_kv": 2, "seq_q": 4, "seq_kv": 8, "head_dim": 8}
PROBLEMS = [
    MatmulProblem(m=4, n=8, k=16, transpose_b=True, bias=True, activation=Activation.GELU),
    MatmulProblem(batch=2, m=4, n=8, k=16, alpha=0.5, bias=True, activation=Activation.SWISH, amax=True),
    ConvProblem(in_channels=4, height=8, out_channels=8, kernel=3, bias=True, activation=Activation.RELU),
    SdpaProblem(**ATTENTION),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL_BOTTOM_RIGHT),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL_BOTTOM_RIGHT, window=3),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL_BOTTOM_RIGHT, window=3, stats=True),
]


@pytest.fixture
def graph_capture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile without its seconds of code generation: what is captured runs eagerly."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_compiled_baselines_are_captured_whole_and_agree_with_eager(problem: Problem, graph_capture_only: None) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, CPU, 0)
    eager, compile_ = (next(b for b in operation.baselines(problem) if b.name == name) for name in ("eager", "compile"))
    expected, actual = eager.run(inputs), compile_.run(inputs)
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor)


def scaled_by(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Functions that share a code object, as the baselines of many problems do."""

    def scale(x: torch.Tensor) -> torch.Tensor:
        assert torch.compiler.is_compiling()  # else torch gave up compiling and ran this as it stands
        return x * factor

    return scale


def test_every_problem_of_a_long_sweep_is_compiled(graph_capture_only: None) -> None:
    for n in range(1, 20):
        x = torch.ones(n)
        assert compiled(scaled_by(n))(x).tolist() == [n] * n
