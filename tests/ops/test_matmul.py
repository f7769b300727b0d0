import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from tests.ops.formulas import FORMULAS
from tests.ops.strategies import matmuls
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Role
from tunefarm.ops.matmul import Matmul, MatmulProblem

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=60)
@given(matmuls)
def test_the_reference_is_the_activated_sum_of_the_formula(problem: MatmulProblem) -> None:
    inputs = Matmul().make_inputs(problem, CPU, 0)
    c = torch.einsum("bmk,bkn->bmn", inputs["a"].double(), inputs["b"].double())
    if problem.alpha != 1:
        c = c * float(torch.tensor(problem.alpha, dtype=torch.float32))  # what a launch is given has 24 bits
    if problem.bias:
        c = c + inputs["bias"].double()
    c = FORMULAS[problem.activation](c)
    outputs = Matmul().reference(problem, inputs)
    torch.testing.assert_close(outputs["c"], c, rtol=1e-12, atol=1e-12)
    if problem.amax:
        assert outputs["amax"].item() == pytest.approx(c.abs().max().item(), rel=1e-12)


def test_b_transposed_is_the_weight_of_a_linear_layer() -> None:
    problem = MatmulProblem(m=3, n=5, k=7, transpose_b=True, bias=True, dtype=DType.FLOAT32)
    inputs = Matmul().make_inputs(problem, CPU, 0)
    layer = torch.nn.Linear(7, 5)
    layer.weight.data = inputs["b"][0].t()
    layer.bias.data = inputs["bias"][0, 0]
    assert layer.weight.is_contiguous()
    expected = Matmul().reference(problem, inputs)["c"][0]
    torch.testing.assert_close(layer(inputs["a"][0]).double(), expected, rtol=1e-5, atol=1e-5)


def test_strides_alone_tell_transposed_operands() -> None:
    def strides(**options: Any) -> dict[str, tuple[int, ...]]:
        return {t.name: t.strides for t in MatmulProblem(batch=2, m=3, n=5, k=7, **options).tensors}

    assert strides() == {"a": (21, 7, 1), "b": (35, 5, 1), "c": (15, 5, 1)}
    assert strides(transpose_a=True) == {"a": (21, 1, 3), "b": (35, 5, 1), "c": (15, 5, 1)}
    assert strides(transpose_b=True) == {"a": (21, 7, 1), "b": (35, 1, 7), "c": (15, 5, 1)}


def test_uids_never_move() -> None:
    everything = MatmulProblem(m=2, n=2, k=2, alpha=0.5, bias=True, amax=True)
    assert {t.name: t.uid for t in everything.tensors} == {"a": 1, "b": 2, "alpha": 3, "bias": 4, "c": 5, "amax": 6}
    assert {t.name: t.uid for t in MatmulProblem(m=2, n=2, k=2).tensors} == {"a": 1, "b": 2, "c": 5}


def test_alpha_is_a_host_scalar_in_the_key_but_not_in_the_structure() -> None:
    half, double = (MatmulProblem(m=2, n=2, k=2, alpha=alpha) for alpha in (0.5, 2))
    (scalar,) = (t for t in half.tensors if t.role is Role.SCALAR)
    assert (scalar.name, scalar.shape, scalar.dtype) == ("alpha", (1, 1, 1), DType.FLOAT32)
    assert half.key != double.key
    assert half.structure == double.structure != MatmulProblem(m=2, n=2, k=2).structure
    assert Matmul().make_inputs(half, CPU, 0)["alpha"].tolist() == [[[0.5]]]


def test_an_alpha_written_as_an_integer_is_the_same_problem() -> None:
    assert MatmulProblem(m=2, n=2, k=2, alpha=2).key == MatmulProblem(m=2, n=2, k=2, alpha=2.0).key


@pytest.mark.parametrize("alpha", [0.0, math.inf, math.nan])
def test_an_alpha_that_leaves_nothing_of_the_product_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidProblem, match=r"alpha: .* give a finite factor"):
        MatmulProblem(m=2, n=2, k=2, alpha=alpha)


def test_a_product_beyond_32_bit_indices_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="c: tensor c spans"):
        MatmulProblem(m=2**16, n=2**16, k=8)


def test_amax_is_of_values_before_rounding_in_reference_and_baseline() -> None:
    problem = MatmulProblem(m=8, n=8, k=32, amax=True)
    inputs = Matmul().make_inputs(problem, CPU, 0)
    exact = Matmul().reference(problem, inputs)["amax"].item()
    rounded = Matmul().reference(problem, inputs)["c"].bfloat16().abs().max().item()
    assert abs(rounded / exact - 1) > 1e-4
    assert Matmul().baselines(problem)[0].run(inputs)["amax"].item() == pytest.approx(exact, rel=1e-6)


def test_sums_have_the_size_of_their_terms() -> None:
    problem = MatmulProblem(m=64, n=64, k=4096)
    c = Matmul().reference(problem, Matmul().make_inputs(problem, CPU, 0))["c"]
    assert c.std().item() == pytest.approx(1, rel=0.05)


def test_flops_and_bytes_of_a_linear_layer() -> None:
    problem = MatmulProblem(m=16, n=32, k=64, bias=True, alpha=0.5)
    assert problem.flops == 2 * 16 * 32 * 64
    assert problem.bytes_moved == 2 * (16 * 64 + 64 * 32 + 32 + 16 * 32)
