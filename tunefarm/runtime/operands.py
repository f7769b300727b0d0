"""What calls have in common about their tensors: what a problem takes, or why none describes them."""

from __future__ import annotations

from typing import Any

import torch

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem, UsageError
from tunefarm.model.problem import Problem
from tunefarm.ops.activation import Activation
from tunefarm.runtime.calls import Tensors, Unserved
from tunefarm.runtime.layouts import same_layout

_DTYPES = {getattr(torch, dtype): dtype for dtype in DType}


def dtype_of(tensors: Tensors) -> DType:
    """The one dtype of dense tensors on one device. Raises Unserved if they have nothing of that."""
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) != 1 or not dtypes <= _DTYPES.keys():
        raise Unserved(f"dtypes {', '.join(sorted(str(d).removeprefix('torch.') for d in dtypes))}")
    if len({t.device for t in tensors}) != 1:
        raise Unserved("the tensors are on more than one device")
    if any(t.layout is not torch.strided for t in tensors):
        raise Unserved("a tensor is sparse")
    return _DTYPES[dtypes.pop()]


def activation_of(name: str) -> Activation:
    """The activation of a name. Raises UsageError if there is none."""
    try:
        return Activation(name)
    except ValueError:
        raise UsageError(f"no activation is named {name!r}; there are {', '.join(Activation)}") from None


def require_bias(rest: Tensors, length: int) -> None:
    """Raises Unserved if what is there is no bias of this length."""
    for bias in rest:
        if tuple(bias.shape) != (length,) or not same_layout(bias.shape, bias.stride(), (1,)):
            raise Unserved(f"the bias is no vector of {length}")


def problem_of(problem_type: type[Problem], **fields: Any) -> Problem:
    """A problem of these fields. Raises Unserved if they make none."""
    try:
        return problem_type(**fields)
    except InvalidProblem as error:
        raise Unserved(f"no problem: {error}") from None


def shapes_of(tensors: Tensors) -> str:
    """The shapes, for a message."""
    return ", ".join(str(tuple(t.shape)) for t in tensors)
