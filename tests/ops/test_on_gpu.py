"""What only a GPU can tell: that cuDNN's plans and torch's kernels mean by each option what the references mean."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tunefarm.engines import make_engine
from tunefarm.model.dtypes import DType
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem, Role
from tunefarm.ops import operation_of
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem

pytestmark = pytest.mark.gpu

LINEAR: dict[str, Any] = {"m": 192, "n": 320, "k": 512, "bias": True}
IMAGE: dict[str, Any] = {"batch": 2, "in_channels": 64, "height": 15, "width": 18, "out_channels": 96, "kernel": 3}
ATTENTION: dict[str, Any] = {"batch": 2, "heads_q": 8, "heads_kv": 2, "seq_q": 200, "seq_kv": 328, "head_dim": 64}

PROBLEMS = [
    *(MatmulProblem(**LINEAR, transpose_b=True, activation=activation) for activation in Activation),
    MatmulProblem(**LINEAR, batch=3, transpose_a=True, dtype=DType.FLOAT16),
    MatmulProblem(**LINEAR, alpha=0.25, transpose_b=True, activation=Activation.GELU, amax=True),
    MatmulProblem(**LINEAR, batch=3, amax=True),
    *(ConvProblem(**IMAGE, padding=1, bias=True, activation=activation) for activation in Activation),
    ConvProblem(**IMAGE, kernel_w=2, padding_w=1, stride=2, stride_w=1, dilation_w=2, dtype=DType.FLOAT16),
    ConvProblem(**IMAGE, groups=4),
    ConvProblem(**IMAGE, layout=ConvLayout.NCHW),
    *(SdpaProblem(**ATTENTION, mask=mask, window=window) for mask in Mask for window in (0, 40)),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL_BOTTOM_RIGHT, stats=True, layout=SdpaLayout.BSHD),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL, window=40, stats=True, dtype=DType.FLOAT16),
    SdpaProblem(**(ATTENTION | {"seq_q": 1}), mask=Mask.CAUSAL_BOTTOM_RIGHT, window=40),
    SdpaProblem(**(ATTENTION | {"seq_kv": 200, "heads_kv": 8}), mask=Mask.CAUSAL),
    SdpaProblem(**(ATTENTION | {"heads_kv": 8}), mask=Mask.CAUSAL_BOTTOM_RIGHT, layout=SdpaLayout.BSHD),
]


def assert_right(problem: Problem, outputs: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    for spec in problem.outputs:
        actual, reference = outputs[spec.name].double(), expected[spec.name]
        error = ((actual - reference).norm() / reference.norm()).item()
        # A side output in float32 keeps the errors of its float32 sums, far below a rounding to 16 bits.
        assert error < (4 * spec.dtype.roundoff if spec.dtype is problem.inputs[0].dtype else 1e-5), spec.name


@pytest.mark.cudnn
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_cudnn_s_first_choice_agrees_with_the_reference(problem: Problem) -> None:
    engine = make_engine("cudnn")
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, torch.device("cuda"), 0)
    outputs = {
        spec.name: torch.full((spec.span,), torch.nan, dtype=getattr(torch, spec.dtype), device="cuda").as_strided(
            spec.shape, spec.strides
        )
        for spec in problem.outputs
    }
    plan = engine.build(problem, engine.propose(problem, Search()).candidates[0])
    loaded = engine.load(problem, plan)
    workspace = (
        torch.empty(loaded.workspace_bytes, dtype=torch.uint8, device="cuda") if loaded.workspace_bytes else None
    )
    loaded.bind(inputs, outputs, workspace)()
    assert_right(problem, outputs, operation.reference(problem, inputs))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_every_baseline_agrees_with_the_reference(problem: Problem) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, torch.device("cuda"), 0)
    expected = operation.reference(problem, inputs)
    for baseline in operation.baselines(problem):
        if not baseline.compiles:
            assert_right(problem, baseline.run(inputs), expected)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "problem", [p for p in PROBLEMS if isinstance(p, SdpaProblem) and not p.stats], ids=lambda problem: problem.label
)
def test_an_attention_backend_s_own_operator_gives_the_bits_that_torch_s_function_gives(problem: SdpaProblem) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, torch.device("cuda"), 0)
    for baseline in operation.baselines(problem):
        if baseline.direct is not None:
            try:
                expected = baseline.run(inputs)["o"]
            except RuntimeError:  # torch does not hold this backend fit
                continue
            direct = baseline.direct(inputs)["o"]
            assert torch.equal(direct, expected), baseline.name
            assert direct.stride() == expected.stride(), baseline.name


@pytest.mark.parametrize(
    "problem",
    [p for p in PROBLEMS if isinstance(p, MatmulProblem) and p.amax] + [p for p in PROBLEMS if "stats" in p.label],
    ids=lambda problem: problem.label,
)
def test_compiled_baselines_keep_their_side_outputs(problem: Problem) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, torch.device("cuda"), 0)
    (compiled,) = (b for b in operation.baselines(problem) if b.compiles)
    assert_right(problem, compiled.run(inputs), operation.reference(problem, inputs))


def test_cuda_inputs_depend_on_the_seed_alone() -> None:
    problem = SdpaProblem(**ATTENTION)
    operation = operation_of(problem)
    first, again, other = (operation.make_inputs(problem, torch.device("cuda"), seed) for seed in (1, 1, 2))
    for spec in problem.inputs:
        assert spec.role is Role.INPUT
        assert torch.equal(first[spec.name], again[spec.name])
        assert not torch.equal(first[spec.name], other[spec.name])
