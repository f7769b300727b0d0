"""Activations that follow a product."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Elementwise = Callable[["torch.Tensor"], "torch.Tensor"]
"""A function of each element."""


class Activation(StrEnum):
    """An elementwise function of an operation's result."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"
    """x * Phi(x) with the exact normal distribution (erf), torch's default; not the tanh approximation."""
    SWISH = "swish"
    """x * sigmoid(x), which torch calls SiLU."""

    @property
    def function(self) -> Elementwise:
        """The function as a torch user writes it, in the tensor's own precision.

        Fetch it outside what torch.compile is to trace: torch 2.11 can't trace through an enum's own code.
        """
        from torch.nn import functional

        functions: dict[Activation, Elementwise] = {
            Activation.NONE: _identity,
            Activation.RELU: functional.relu,
            Activation.GELU: functional.gelu,
            Activation.SWISH: functional.silu,
        }
        return functions[self]


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x
