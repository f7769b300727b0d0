"""How the tensors of a call lie in memory, compared with how a problem says they do."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm.ops.layouts import packed_strides


def same_layout(shape: Sequence[int], have: Sequence[int], want: Sequence[int]) -> bool:
    """Whether strides address the same elements. The stride of an axis of one means nothing."""
    return all(n == 1 or h == w for n, h, w in zip(shape, have, want, strict=True))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor without gaps, last axis fastest."""
    return packed_strides(shape, range(len(shape)))


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor [images, channels, rows, columns] without gaps, the channels of a pixel together."""
    return packed_strides(shape, (0, 2, 3, 1))


def heads_inside(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor [batch, heads, sequence, head_dim] as a linear projection leaves it."""
    return packed_strides(shape, (0, 2, 1, 3))


def is_transposed(shape: Sequence[int], strides: Sequence[int]) -> bool | None:
    """Whether a matrix, or a stack of them, is stored with its last two axes swapped; None if neither way.

    What lies both ways, such as one row, is not called transposed. What has gaps lies neither way.
    """
    if same_layout(shape, strides, row_major(shape)):
        return False
    axes = range(len(shape) - 2)
    swapped = packed_strides(shape, (*axes, len(shape) - 1, len(shape) - 2))
    return True if same_layout(shape, strides, swapped) else None
