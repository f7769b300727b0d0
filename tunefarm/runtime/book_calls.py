"""The calls of a plan book: torch's own, each answered by the route of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tunefarm.model.errors import UsageError
from tunefarm.model.problem import Problem, Role
from tunefarm.ops.sdpa import Mask
from tunefarm.runtime import functions
from tunefarm.runtime.attention_call import AttentionCall, is_lower_right
from tunefarm.runtime.calls import ProblemCall
from tunefarm.runtime.conv_call import ConvCall
from tunefarm.runtime.eager import Pair
from tunefarm.runtime.facts import facts_of_all, facts_of_three, facts_of_two
from tunefarm.runtime.ledger import Cause
from tunefarm.runtime.product_calls import LinearCall, MatmulCall
from tunefarm.runtime.threads import Desk

_compiling = torch.compiler.is_compiling


class BookCalls:
    """What `PlanBook` is called with.

    Each call looks its route up by all that a route depends on, and makes it the first time.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._input_names: dict[str, tuple[str, ...]] = {}
        self._number = functions.register(self)

    def linear(self, x: Tensor, w: Tensor, b: Tensor | None = None, activation: str = "none") -> Tensor:
        """activation(x @ w.T + b), as `torch.nn.functional.linear`.

        Args:
            x: [..., k].
            w: [n, k].
            b: [n].
            activation: `none`, `relu`, `gelu` (exact) or `swish`.

        Returns:
            [..., n], contiguous.
        """
        if _compiling():
            return functions.linear(self._number, x, w, b, activation)
        tensors = (x, w) if b is None else (x, w, b)
        key = ("linear", activation, facts_of_two(x, w) if b is None else facts_of_three(x, w, b))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, LinearCall(activation), tensors)
        result: Tensor = route(tensors)
        return result

    def matmul(
        self, a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str = "none", alpha: float = 1.0
    ) -> Tensor:
        """activation(alpha * a @ b + bias), as `torch.matmul`.

        Args:
            a: [..., m, k].
            b: [..., k, n] or [k, n].
            bias: [n].
            activation: as for `linear`.
            alpha: finite and not 0.

        Returns:
            [..., m, n], contiguous.
        """
        if _compiling():
            return functions.matmul(self._number, a, b, bias, activation, alpha)
        tensors = (a, b) if bias is None else (a, b, bias)
        key = ("matmul", activation, alpha, facts_of_two(a, b) if bias is None else facts_of_three(a, b, bias))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, MatmulCall(activation, alpha), tensors)
        result: Tensor = route(tensors)
        return result

    def conv2d(  # noqa: PLR0917 - torch's own signature
        self,
        x: Tensor,
        w: Tensor,
        b: Tensor | None = None,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        activation: str = "none",
    ) -> Tensor:
        """activation(conv2d(x, w, b)), as `torch.nn.functional.conv2d`.

        Args:
            x: [batch, channels, rows, columns]. Plans are for image and filter that are both contiguous, or both in
                channels-last order.
            w: [filters, channels / groups, rows, columns].
            b: [filters].
            stride: of the filter, over rows and columns.
            padding: zeros on each side, or `same` or `valid`.
            dilation: distance between the filter's rows and columns.
            groups: of channels that don't mix.
            activation: as for `linear`.
        """
        if _compiling():
            return functions.conv2d(
                self._number,
                x,
                w,
                b,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
                activation=activation,
            )
        stride, padding, dilation = _hashable(stride), _hashable(padding), _hashable(dilation)
        tensors = (x, w) if b is None else (x, w, b)
        facts = facts_of_two(x, w) if b is None else facts_of_three(x, w, b)
        key = ("conv2d", stride, padding, dilation, groups, activation, facts)
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, ConvCall(stride, padding, dilation, groups, activation), tensors)
        result: Tensor = route(tensors)
        return result

    def scaled_dot_product_attention(  # noqa: PLR0917 - torch's own signature
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attention, as `torch.nn.functional.scaled_dot_product_attention`, whose arguments these are.

        Plans are for queries, keys and values that are all contiguous, or all [batch, sequence, heads, head_dim] in
        memory; for `is_causal`, or `torch.nn.attention.bias.causal_lower_right` as the mask, or none. Dropout and other
        masks are torch's.
        """
        if attn_mask is None and not dropout_p:
            if _compiling():
                return functions.attention(
                    self._number, query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
                )
            mask = Mask.CAUSAL if is_causal else Mask.NONE
        elif is_lower_right(attn_mask, query, key) and not dropout_p and not is_causal and not _compiling():
            mask = Mask.CAUSAL_BOTTOM_RIGHT
        else:
            if not _compiling():
                self._desk.leave_to_torch(AttentionCall.name, Cause.UNSERVED, "dropout, or a mask that no problem has")
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        tensors = (query, key, value)
        asked = ("attention", mask, scale, enable_gqa, facts_of_three(query, key, value))
        route = self._desk.routes.get(asked)
        if route is None:
            route = self._desk.make_route(asked, AttentionCall(mask, scale, enable_gqa), tensors)
        result: Tensor = route(tensors)
        return result

    def run(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every output of a problem, by name.

        Args:
            problem: of any operation family.
            inputs: the problem's inputs by name. Host scalars may be left out: their values are the problem's own.

        Raises:
            UsageError: an input is missing, or has another shape or dtype than the problem says.
        """
        names = self._input_names.get(problem.key)
        if names is None:
            names = tuple(spec.name for spec in problem.inputs if spec.role is Role.INPUT)
            self._input_names[problem.key] = names
        try:
            tensors = tuple(inputs[name] for name in names)
        except KeyError as missing:
            raise UsageError(f"{problem.label} needs the input {missing}; its inputs are {', '.join(names)}") from None
        key = ("run", problem.key, facts_of_all(tensors))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, ProblemCall(problem), tensors)
        outputs: dict[str, Tensor] = route(tensors)
        return outputs


def _hashable(value: Pair | str) -> Any:
    """A list, which torch takes too, as a tuple."""
    return tuple(value) if isinstance(value, list) else value
