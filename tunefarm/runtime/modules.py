"""Put a plan book under a model: its layers' calls become the book's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tunefarm.model.problem import Problem
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime.book import PlanBook


class BookLinear(nn.Linear):
    """A linear layer that asks a plan book."""

    book: PlanBook

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Linear gives it
        return self.book.linear(input, self.weight, self.bias)


class BookConv2d(nn.Conv2d):
    """A convolution that asks a plan book. Padding other than with zeros is done by torch, before."""

    book: PlanBook

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as above
        return self.book.conv2d(
            input,
            self.weight,
            self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


@dataclass(frozen=True)
class Covered:
    """One layer of a model."""

    name: str
    """Its place in the module tree, such as `layers.0.mlp.down`."""
    kind: str
    replaced: bool
    plans: int
    """Entries of the bundle that are for this layer's sizes and fit this machine, one for each size of input."""
    reason: str
    """Why it was left as it was; empty if it was replaced."""


@dataclass(frozen=True)
class Coverage:
    """What `apply` did to a model. Prints as a table."""

    layers: tuple[Covered, ...]

    @property
    def replaced(self) -> int:
        """Layers that ask the book now."""
        return sum(layer.replaced for layer in self.layers)

    def __str__(self) -> str:
        lines = [f"{self.replaced} of {len(self.layers)} layers ask the plan book"]
        for layer in self.layers:
            plans = f"{layer.plans} {'plan' if layer.plans == 1 else 'plans'}"
            lines.append(f"  {layer.name}: {layer.kind}, {plans if layer.replaced else layer.reason}")
        return "\n".join(lines)


def apply(model: nn.Module, book: PlanBook) -> Coverage:
    """Have every linear layer and 2D convolution of a model ask a plan book.

    A layer stays the object it was, with its parameters, hooks and name in the state dict. Its class alone changes, to
    a subclass of `nn.Linear` or `nn.Conv2d`. Layers of classes derived from those are left alone: what they add is
    unknown. Attention has no module of its own: call `book.scaled_dot_product_attention`.

    Layers that the bundle has no plan for are replaced too. They run by torch as before, at the cost of a look-up, and
    their calls are counted for the next sweep (`PlanBook.misses`).

    Args:
        model: changed in place.
        book: kept by each layer.

    Returns:
        Every linear layer and convolution of the model, with what became of it.
    """
    plans = Counter(signature for problem in book.fitting() if (signature := _signature_of(problem)))
    layers = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        reason = _obstacle(module)
        if not reason:
            module.__class__ = BookLinear if isinstance(module, nn.Linear) else BookConv2d
            module.book = book  # type: ignore[assignment]
        kind = "linear" if isinstance(module, nn.Linear) else "conv2d"
        layers.append(Covered(name, kind, not reason, plans[_signature(module)], reason))
    return Coverage(tuple(layers))


def _obstacle(module: nn.Linear | nn.Conv2d) -> str:
    """Why a layer can't be replaced; empty if it can."""
    if type(module) not in {nn.Linear, nn.Conv2d, BookLinear, BookConv2d}:
        return f"it is a {type(module).__name__}, whose additions would be lost"
    if isinstance(module, nn.Conv2d) and module.padding_mode != "zeros":
        return f"it pads in mode {module.padding_mode}"
    if type(module.weight) is not nn.Parameter:
        return f"its weight is a {type(module.weight).__name__}"
    return ""


_Signature = tuple[object, ...]


def _signature(module: nn.Linear | nn.Conv2d) -> _Signature:
    """What a layer's own sizes leave open: the input's alone."""
    dtype, has_bias = module.weight.dtype, module.bias is not None
    if isinstance(module, nn.Linear):
        return ("linear", module.out_features, module.in_features, dtype, has_bias)
    padding = module.padding if isinstance(module.padding, tuple) else (0, 0)
    return (
        "conv2d",
        tuple(module.weight.shape),
        tuple(module.stride),
        padding,
        tuple(module.dilation),
        module.groups,
        dtype,
        has_bias,
    )


def _signature_of(problem: Problem) -> _Signature | None:
    """The signature of the layers that call a problem; None if a module can't."""
    if isinstance(problem, MatmulProblem):
        plain = (
            problem.batch == 1 and problem.transpose_b and not (problem.transpose_a or problem.scaled or problem.amax)
        )
        if not plain or problem.activation != "none":
            return None
        return ("linear", problem.n, problem.k, getattr(torch, problem.dtype), problem.bias)
    if isinstance(problem, ConvProblem) and problem.activation == "none":
        w = next(spec for spec in problem.tensors if spec.name == "w")
        return (
            "conv2d",
            w.shape,
            (problem.stride, problem.stride_w),
            (problem.padding, problem.padding_w),
            (problem.dilation, problem.dilation_w),
            problem.groups,
            getattr(torch, problem.dtype),
            problem.bias,
        )
    return None
