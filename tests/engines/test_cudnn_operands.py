"""A plan sees addresses only, so what is bound to it is checked before."""

import re

import pytest
import torch

from tunefarm.engines.cudnn import _check_operand
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import UsageError
from tunefarm.model.problem import Role, TensorSpec

CPU = torch.device("cpu")
SPEC = TensorSpec(1, "a", Role.INPUT, (1, 4, 8), (32, 8, 1), DType.BFLOAT16)
SCALAR = TensorSpec(3, "alpha", Role.SCALAR, (1, 1, 1), (1, 1, 1), DType.FLOAT32)


def aligned(*shape: int, dtype: torch.dtype = torch.bfloat16, offset: int = 0) -> torch.Tensor:
    """A tensor that begins `offset` elements after a multiple of 64 bytes."""
    size = torch.Size(shape).numel()
    storage = torch.zeros(size + offset + 64, dtype=dtype)
    skip = -storage.data_ptr() % 64 // storage.element_size() + offset
    return storage[skip : skip + size].view(shape)


def test_a_tensor_as_its_spec_says_is_taken() -> None:
    _check_operand(SPEC, aligned(1, 4, 8), CPU)
    _check_operand(SCALAR, torch.ones(1, 1, 1), CPU)


def test_the_stride_of_an_axis_of_one_means_nothing() -> None:
    _check_operand(SPEC, aligned(1, 4, 8).as_strided((1, 4, 8), (999, 8, 1)), CPU)


@pytest.mark.parametrize(
    ("spec", "tensor", "complaint"),
    [
        (
            SPEC,
            aligned(1, 4, 8, dtype=torch.float16),
            "tensor a is float16 (1, 4, 8), the plan wants bfloat16 (1, 4, 8)",
        ),
        (SPEC, aligned(1, 8, 4), "tensor a is bfloat16 (1, 8, 4), the plan wants bfloat16 (1, 4, 8)"),
        (SPEC, aligned(1, 8, 4).transpose(1, 2), "tensor a has strides (32, 1, 4), the plan wants (32, 8, 1)"),
        (SPEC, aligned(1, 4, 8, offset=1), "tensor a begins at an address that is no multiple of 16 bytes"),
        (SPEC, torch.empty(1, 4, 8, dtype=torch.bfloat16, device="meta"), "tensor a is on meta, the plan runs on cpu"),
        (SCALAR, torch.ones(1, 1, 1, device="meta"), "scalar alpha is on meta, the plan reads it from the CPU"),
    ],
)
def test_any_other_tensor_is_refused_with_what_is_wrong(spec: TensorSpec, tensor: torch.Tensor, complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        _check_operand(spec, tensor, CPU)
