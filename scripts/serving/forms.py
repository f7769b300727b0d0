"""A problem as users call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from serving.timing import Run
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime import PlanBook
from tunefarm.runtime.machine import current_device

ROTATED_BYTES = 2**28
"""Tensors are rotated over so many bytes, since weights of other layers would have left L2 too."""


def copies_of(problem: Problem) -> list[dict[str, Tensor]]:
    """Several sets of a problem's inputs."""
    count = min(8, max(1, ROTATED_BYTES // problem.bytes_moved))
    operation, device = operation_of(problem), current_device()
    return [operation.make_inputs(problem, device, seed) for seed in range(count)]


def outputs_of(problem: Problem) -> dict[str, Tensor]:
    return {
        spec.name: torch.empty_strided(spec.shape, spec.strides, dtype=getattr(torch, spec.dtype), device="cuda")
        for spec in problem.outputs
    }


@dataclass(frozen=True)
class Form:
    """A problem as a user calls it."""

    operands: list[tuple[Any, ...]]
    """Arguments of a call, several sets."""
    by_torch: Callable[..., Any]
    compiled: Callable[..., Any]
    ask: Callable[[PlanBook], Callable[..., Any]]
    """The call of a plan book."""

    def over(self, function: Callable[..., Any]) -> Run:
        operands, n = self.operands, len(self.operands)
        return lambda i: function(*operands[i % n])


def form_of(problem: Problem) -> Form:
    sets = copies_of(problem)
    if isinstance(problem, MatmulProblem) and problem.batch == 1 and problem.transpose_b and not problem.amax:
        activate = problem.activation.function

        def linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return activate(functional.linear(x, w, b))

        return Form(
            [(s["a"][0], s["b"][0].t(), s["bias"].flatten() if problem.bias else None) for s in sets],
            linear,
            torch.compile(linear, dynamic=False),
            lambda book: lambda x, w, b: book.linear(x, w, b, problem.activation),
        )
    variants = {baseline.name: baseline.run for baseline in operation_of(problem).baselines(problem)}
    return Form(
        [(inputs,) for inputs in sets],
        variants["eager"],
        variants["compile"],
        lambda book: lambda inputs: book.run(problem, inputs),
    )
