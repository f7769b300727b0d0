"""The book's calls as torch operators, so that torch.compile traces them whole.

An operator is named by what it computes and told the book by number: a graph can hold numbers, not books. Each declares
its result's layout from the shapes alone; where torch's own answer lies otherwise, it is copied into the declared one.
"""

# ruff: noqa: PLR0917 - the signatures of operators are their schemas

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from tunefarm.model.errors import UsageError
from tunefarm.runtime import eager
from tunefarm.runtime.eager import Pair
from tunefarm.runtime.layouts import channels_last, heads_inside, row_major, same_layout

if TYPE_CHECKING:
    from tunefarm.runtime.book_calls import BookCalls

_books: weakref.WeakValueDictionary[int, BookCalls] = weakref.WeakValueDictionary()
_numbers = itertools.count()

# Inductor must hand over tensors as the model has them: plans are for exact strides.
_EXACT = (torch.Tag.needs_exact_strides,)


def register(book: BookCalls) -> int:
    """The number that operators know a book by, for as long as it lives."""
    number = next(_numbers)
    _books[number] = book
    return number


def _book(number: int) -> BookCalls:
    try:
        return _books[number]
    except KeyError:
        raise UsageError(
            f"plan book {number} of a compiled model is gone: keep the book for as long as the model, and compile anew "
            "in each process"
        ) from None


def linear(number: int, x: Tensor, w: Tensor, b: Tensor | None, activation: str) -> Tensor:
    """`PlanBook.linear` while torch.compile traces it."""
    if _traced_by_torch(x, w, b):
        return eager.linear(x, w, b, activation=activation)
    return cast("Tensor", _linear(x, w, b, activation, number))


def matmul(number: int, a: Tensor, b: Tensor, bias: Tensor | None, activation: str, alpha: float) -> Tensor:
    """`PlanBook.matmul` while torch.compile traces it."""
    if _traced_by_torch(a, b, bias):
        return eager.matmul(a, b, bias, activation=activation, alpha=alpha)
    return cast("Tensor", _matmul(a, b, bias, activation, alpha, number))


def conv2d(
    number: int,
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    *,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
    activation: str,
) -> Tensor:
    """`PlanBook.conv2d` while torch.compile traces it."""
    if _traced_by_torch(x, w, b) or isinstance(padding, str):
        return eager.conv2d(
            x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups, activation=activation
        )
    y = _conv2d(x, w, b, _two(stride), _two(padding), _two(dilation), groups, activation, number)
    return cast("Tensor", y)


def attention(
    number: int, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Tensor:
    """`PlanBook.scaled_dot_product_attention` while torch.compile traces it."""
    if _traced_by_torch(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return cast("Tensor", _attention(q, k, v, is_causal, scale, enable_gqa, number))


def _traced_by_torch(*tensors: Tensor | None) -> bool:
    """Whether the call is left to torch, whose own operators have gradients and know autocast."""
    needs_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    return needs_gradient or torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")


def _two(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


@torch.library.custom_op("tunefarm::linear", mutates_args=(), tags=_EXACT)
def _linear(x: Tensor, w: Tensor, b: Tensor | None, activation: str, book: int) -> Tensor:
    return _laid_out(_book(book).linear(x, w, b, activation), row_major)


_linear.register_fake(lambda x, w, *_: x.new_empty((*x.shape[:-1], w.shape[0])))


@torch.library.custom_op("tunefarm::matmul", mutates_args=(), tags=_EXACT)
def _matmul(a: Tensor, b: Tensor, bias: Tensor | None, activation: str, alpha: float, book: int) -> Tensor:
    return _laid_out(_book(book).matmul(a, b, bias, activation, alpha), row_major)


_matmul.register_fake(lambda a, b, *_: a.new_empty(torch.matmul(a, b).shape))


@torch.library.custom_op("tunefarm::conv2d", mutates_args=(), tags=_EXACT)
def _conv2d(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    book: int,
) -> Tensor:
    y = _book(book).conv2d(x, w, b, tuple(stride), tuple(padding), tuple(dilation), groups, activation)
    return _laid_out(y, _conv_strides(x, w))


@_conv2d.register_fake
def _(x: Tensor, w: Tensor, b: Tensor | None, *geometry: Any) -> Tensor:
    shape = functional.conv2d(x, w, b, *geometry[:4]).shape  # stride, padding, dilation, groups
    return x.new_empty_strided(shape, _conv_strides(x, w)(shape))


@torch.library.custom_op("tunefarm::attention", mutates_args=(), tags=_EXACT)
def _attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, enable_gqa: bool, book: int
) -> Tensor:
    o = _book(book).scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return _laid_out(o, _attention_strides(q))


@_attention.register_fake
def _(q: Tensor, _k: Tensor, v: Tensor, *_options: Any) -> Tensor:
    shape = (*q.shape[:-1], v.shape[-1])
    return q.new_empty_strided(shape, _attention_strides(q)(shape))


StridesOf = Callable[[Sequence[int]], tuple[int, ...]]


def _conv_strides(x: Tensor, w: Tensor) -> StridesOf:
    """Channels last if image or filter are so, as torch's own convolution."""
    last = torch.channels_last
    is_last = any(t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, w))
    return channels_last if is_last else row_major


def _attention_strides(q: Tensor) -> StridesOf:
    """As the queries lie."""
    is_inside = q.dim() == 4 and not q.is_contiguous() and q.transpose(1, 2).is_contiguous()
    return heads_inside if is_inside else row_major


def _laid_out(tensor: Tensor, strides_of: StridesOf) -> Tensor:
    """The tensor in the declared layout."""
    strides = strides_of(tensor.shape)
    if same_layout(tensor.shape, tensor.stride(), strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
