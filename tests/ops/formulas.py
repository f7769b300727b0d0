"""Activations by their formulas, to hold torch's against."""

import math
from collections.abc import Callable

import torch

from tunefarm.ops.activation import Activation

FORMULAS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: lambda x: torch.where(x > 0, x, 0.0),
    Activation.GELU: lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2))),
    Activation.SWISH: lambda x: x / (1 + torch.exp(-x)),
}
