"""Calls as a torch user writes them: the problem that each one is, and torch's own way to answer it.

A call is what its caller chose beside the tensors: frozen, hashable. Its tensors come separately, in a fixed order.
Each family has a module of its own: `product_calls`, `conv_call`, `attention_call`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from tunefarm.model.errors import UsageError
from tunefarm.model.problem import Problem, Role
from tunefarm.ops import operation_of
from tunefarm.runtime.layouts import same_layout

Tensors = Sequence[torch.Tensor]


class Unserved(Exception):
    """No problem describes a call: the text says what is in the way. Torch answers it."""


@dataclass(frozen=True)
class Request:
    """A call on tensors of certain shapes, as a problem."""

    problem: Problem
    operands: tuple[str, ...]
    """The problem's name of each tensor of the call, in the call's order."""
    output: str | None
    """The problem's name of the result; None for all outputs, by name."""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    """The one result as the caller gets it: the problem's output, its axes folded as the call's are."""


class Call(ABC):
    """What a caller chose beside the tensors."""

    name: ClassVar[str]

    @abstractmethod
    def problem(self, tensors: Tensors) -> Request:
        """The problem that the call is on tensors of these shapes, strides and dtypes.

        Raises:
            Unserved: there is none.
        """

    @abstractmethod
    def by_torch(self, *tensors: torch.Tensor) -> Any:
        """Torch's own answer."""


@dataclass(frozen=True)
class ProblemCall(Call):
    """A problem on its own inputs, in the order of their specs, without host scalars. Answers all outputs by name."""

    name: ClassVar[str] = "run"
    asked: Problem

    def problem(self, tensors: Tensors) -> Request:
        """As for every call.

        Raises:
            UsageError: a tensor is none of the problem's.
        """
        specs = [spec for spec in self.asked.inputs if spec.role is Role.INPUT]
        for spec, tensor in zip(specs, tensors, strict=True):
            if tuple(tensor.shape) != spec.shape or tensor.dtype != getattr(torch, spec.dtype):
                found = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
                raise UsageError(
                    f"{self.asked.label} wants {spec.name} as {spec.dtype} {spec.shape}, and it is {found}"
                )
        if len({t.device for t in tensors}) != 1:
            raise Unserved("the tensors are on more than one device")
        for spec, tensor in zip(specs, tensors, strict=True):
            if not same_layout(spec.shape, tensor.stride(), spec.strides):
                raise Unserved(f"{spec.name} has strides {tuple(tensor.stride())}, the problem's are {spec.strides}")
        return Request(self.asked, tuple(spec.name for spec in specs), None)

    def by_torch(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        names = [spec.name for spec in self.asked.inputs if spec.role is Role.INPUT]
        eagerly = operation_of(self.asked).baselines(self.asked)[0].run
        return dict(eagerly(dict(zip(names, tensors, strict=True))))
