"""What a route depends on: looked at in every call, and so as cheaply as Python can.

Each tensor's class, dtype, shape, layout and device, whether any needs a gradient, and whether autocast is on. Strides
only where there are gaps or another order of axes, and devices after the first by index: both cost less.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

_grad_enabled = torch.is_grad_enabled
_autocast = torch._C._is_any_autocast_enabled  # noqa: SLF001 - torch's public question is about one kind of device


def facts_of_two(x: Tensor, w: Tensor) -> Hashable:
    """All that a route depends on, of two tensors."""
    return (
        _grad_enabled() and (x.requires_grad or w.requires_grad), _autocast(), x.device,
        type(x), x.dtype, x.shape, x.is_contiguous() or x.stride(),
        type(w), w.dtype, w.shape, w.is_contiguous() or w.stride(), w.get_device(),
    )  # fmt: skip


def facts_of_three(x: Tensor, w: Tensor, b: Tensor) -> Hashable:
    """The same of three."""
    return (
        _grad_enabled() and (x.requires_grad or w.requires_grad or b.requires_grad), _autocast(), x.device,
        type(x), x.dtype, x.shape, x.is_contiguous() or x.stride(),
        type(w), w.dtype, w.shape, w.is_contiguous() or w.stride(), w.get_device(),
        type(b), b.dtype, b.shape, b.is_contiguous() or b.stride(), b.get_device(),
    )  # fmt: skip


def facts_of_all(tensors: tuple[Tensor, ...]) -> Hashable:
    """The same of any number, for calls where a microsecond more is no matter."""
    needs_gradient = _grad_enabled() and any(t.requires_grad for t in tensors)
    return needs_gradient, _autocast(), *((type(t), t.dtype, t.shape, t.stride(), t.device) for t in tensors)
