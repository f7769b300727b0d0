"""Activations that follow a product."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Activation(StrEnum):
    """An elementwise function of an operation's result."""

    NONE = "none"
    RELU = "relu"
    GELU = "gelu"
    """x * Phi(x) with the exact normal distribution (erf), torch's default; not the tanh approximation."""
    SWISH = "swish"
    """x * sigmoid(x), which torch calls SiLU."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The function as a torch user writes it, in the tensor's own precision."""
        from torch.nn import functional

        match self:
            case Activation.NONE:
                return x
            case Activation.RELU:
                return functional.relu(x)
            case Activation.GELU:
                return functional.gelu(x)
            case Activation.SWISH:
                return functional.silu(x)
