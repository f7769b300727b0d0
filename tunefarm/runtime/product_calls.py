"""Linear layers and products of matrices as problems."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from tunefarm.ops.activation import Activation
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime import eager, operands
from tunefarm.runtime.calls import Call, Request, Tensors, Unserved
from tunefarm.runtime.layouts import is_transposed, row_major, same_layout


@dataclass(frozen=True)
class LinearCall(Call):
    """activation(x @ w.T + b) with x [..., k], w [n, k] and, if given, b [n]."""

    name: ClassVar[str] = "linear"
    activation: str = Activation.NONE

    def problem(self, tensors: Tensors) -> Request:
        x, w, *rest = tensors
        dtype = operands.dtype_of(tensors)
        if x.dim() == 0 or w.dim() != 2 or x.shape[-1] != w.shape[-1]:
            raise Unserved(f"shapes {operands.shapes_of(tensors)} are no linear layer's")
        n, k = w.shape
        lead = tuple(x.shape[:-1])
        operands.require_bias(rest, n)
        stored_as_n_k = not is_transposed(w.shape, _packed(w, "the weight"))
        if not same_layout(x.shape, x.stride(), row_major(x.shape)):
            if x.dim() != 2 or is_transposed(x.shape, x.stride()) is None:
                raise Unserved("the input has gaps, or its axes are in another order")
            transpose_a = True
        else:
            transpose_a = False
        problem = operands.problem_of(
            MatmulProblem,
            m=math.prod(lead),
            n=n,
            k=k,
            dtype=dtype,
            transpose_a=transpose_a,
            transpose_b=stored_as_n_k,
            bias=bool(rest),
            activation=operands.activation_of(self.activation),
        )
        return Request(problem, ("a", "b", *["bias"] * len(rest)), "c", (*lead, n), row_major((*lead, n)))

    def by_torch(self, *tensors: torch.Tensor) -> torch.Tensor:
        return eager.linear(*tensors, activation=self.activation)


@dataclass(frozen=True)
class MatmulCall(Call):
    """activation(alpha * a @ b + bias) with a [..., m, k], b [..., k, n] or [k, n] and, if given, bias [n]."""

    name: ClassVar[str] = "matmul"
    activation: str = Activation.NONE
    alpha: float = 1.0

    def problem(self, tensors: Tensors) -> Request:
        a, b, *rest = tensors
        dtype = operands.dtype_of(tensors)
        if min(a.dim(), b.dim()) < 2 or a.shape[-1] != b.shape[-2]:
            raise Unserved(f"shapes {operands.shapes_of(tensors)} are no product of matrices")
        lead, m, k, n = tuple(a.shape[:-2]), a.shape[-2], a.shape[-1], b.shape[-1]
        operands.require_bias(rest, n)
        transpose_b = is_transposed(b.shape, _packed(b, "b"))
        transpose_a = is_transposed(a.shape, _packed(a, "a"))
        batch = math.prod(lead)
        if b.dim() == 2 and not transpose_a:
            batch, rows = 1, batch * m  # one matrix for all of the batch: its rows are the rows of one product
        elif tuple(b.shape[:-2]) == lead:
            rows = m
        else:
            raise Unserved(f"shapes {operands.shapes_of(tensors)} would be broadcast")
        problem = operands.problem_of(
            MatmulProblem,
            batch=batch,
            m=rows,
            n=n,
            k=k,
            dtype=dtype,
            transpose_a=bool(transpose_a),
            transpose_b=bool(transpose_b),
            alpha=self.alpha,
            bias=bool(rest),
            activation=operands.activation_of(self.activation),
        )
        shape = (*lead, m, n)
        return Request(problem, ("a", "b", *["bias"] * len(rest)), "c", shape, row_major(shape))

    def by_torch(self, *tensors: torch.Tensor) -> torch.Tensor:
        return eager.matmul(*tensors, activation=self.activation, alpha=self.alpha)


def _packed(tensor: torch.Tensor, what: str) -> tuple[int, ...]:
    """Strides of a tensor of matrices without gaps. Raises Unserved."""
    strides = tuple(tensor.stride())
    if is_transposed(tensor.shape, strides) is None:
        raise Unserved(f"{what} has gaps, or its axes are in another order")
    return strides
