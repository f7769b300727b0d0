"""2D convolutions as problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.runtime import eager, operands
from tunefarm.runtime.calls import Call, Request, Tensors, Unserved
from tunefarm.runtime.eager import Pair
from tunefarm.runtime.layouts import channels_last, row_major, same_layout


@dataclass(frozen=True)
class ConvCall(Call):
    """activation(conv2d(x, w, b)).

    x is [batch, channels, rows, columns], w [filters, channels / groups, rows, columns], and b, if given, [filters].
    """

    name: ClassVar[str] = "conv2d"
    stride: Pair = 1
    padding: Pair | str = 0
    dilation: Pair = 1
    groups: int = 1
    activation: str = Activation.NONE

    def problem(self, tensors: Tensors) -> Request:
        x, w, *rest = tensors
        dtype = operands.dtype_of(tensors)
        if x.dim() != 4 or w.dim() != 4 or x.shape[1] != w.shape[1] * self.groups:
            raise Unserved(f"shapes {operands.shapes_of(tensors)} are no convolution of a batch of images")
        operands.require_bias(rest, w.shape[0])
        layout = _layout_of(x, w)
        stride, dilation = _pair(self.stride), _pair(self.dilation)
        padding = self._padding(w, stride, dilation)
        problem = operands.problem_of(
            ConvProblem,
            batch=x.shape[0],
            in_channels=x.shape[1],
            height=x.shape[2],
            width=x.shape[3],
            out_channels=w.shape[0],
            kernel=w.shape[2],
            kernel_w=w.shape[3],
            stride=stride[0],
            stride_w=stride[1],
            padding=padding[0],
            padding_w=padding[1],
            dilation=dilation[0],
            dilation_w=dilation[1],
            groups=self.groups,
            dtype=dtype,
            layout=layout,
            bias=bool(rest),
            activation=operands.activation_of(self.activation),
        )
        y = problem.outputs[0]
        return Request(problem, ("x", "w", *["bias"] * len(rest)), "y", y.shape, y.strides)

    def by_torch(self, *tensors: torch.Tensor) -> torch.Tensor:
        return eager.conv2d(
            *tensors,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            activation=self.activation,
        )

    def _padding(self, w: torch.Tensor, stride: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, int]:
        if self.padding == "valid":
            return (0, 0)
        if self.padding == "same":
            reach = [(size - 1) * step for size, step in zip(w.shape[2:], dilation, strict=True)]
            if stride != (1, 1) or any(r % 2 for r in reach):
                raise Unserved("padding 'same' is not the same on both sides here")
            return (reach[0] // 2, reach[1] // 2)
        if isinstance(self.padding, str):
            raise Unserved(f"padding {self.padding!r} is unknown")
        return _pair(self.padding)


def _layout_of(x: torch.Tensor, w: torch.Tensor) -> ConvLayout:
    """The layout that both image and filter have. Raises Unserved if there is none."""
    for layout, strides in ((ConvLayout.NCHW, row_major), (ConvLayout.NHWC, channels_last)):
        if all(same_layout(t.shape, t.stride(), strides(t.shape)) for t in (x, w)):
            return layout
    raise Unserved("image and filter are not both contiguous, nor both in channels-last order")


def _pair(value: Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return (value, value)
    if len(value) != 2:
        raise Unserved(f"{value} is no pair for rows and columns")
    return (value[0], value[1])
