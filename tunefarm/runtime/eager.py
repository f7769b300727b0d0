"""The book's calls as plain torch: what a user writes without a book, and what torch.compile may trace.

Each is a function of its tensors, then of what else its caller chose.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tunefarm.ops.activation import Activation

Pair = int | tuple[int, ...]
"""One value for rows and columns, or one of each."""

ACTIVATIONS = {activation.value: activation.function for activation in Activation}
"""By name, fetched here since torch.compile can't trace an enum's own code."""


def linear(x: Tensor, w: Tensor, b: Tensor | None = None, *, activation: str) -> Tensor:
    """activation(x @ w.T + b)."""
    return ACTIVATIONS[activation](functional.linear(x, w, b))


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None, *, activation: str, alpha: float) -> Tensor:
    """activation(alpha * a @ b + bias)."""
    c = torch.matmul(a, b)
    if alpha != 1:
        c = c * alpha
    return ACTIVATIONS[activation](c if bias is None else c + bias)


def conv2d(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
    activation: str,
) -> Tensor:
    """activation(conv2d(x, w, b))."""
    return ACTIVATIONS[activation](functional.conv2d(x, w, b, stride, padding, dilation, groups))
