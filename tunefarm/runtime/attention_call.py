"""Attention as problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional
from torch.nn.attention.bias import CausalBias, CausalVariant, causal_lower_right

from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem
from tunefarm.runtime import operands
from tunefarm.runtime.calls import Call, Request, Tensors, Unserved
from tunefarm.runtime.layouts import heads_inside, row_major, same_layout


@dataclass(frozen=True)
class AttentionCall(Call):
    """softmax(scale * q @ k.T, masked) @ v, all [batch, heads, sequence, head_dim]."""

    name: ClassVar[str] = "scaled_dot_product_attention"
    mask: Mask = Mask.NONE
    scale: float | None = None
    enable_gqa: bool = False

    def problem(self, tensors: Tensors) -> Request:
        q, k, v = tensors
        dtype = operands.dtype_of(tensors)
        if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
            raise Unserved(f"shapes {operands.shapes_of(tensors)} are no attention with one head size")
        if q.shape[1] != k.shape[1] and not self.enable_gqa:
            raise Unserved("query heads share key heads, and enable_gqa is not set")
        if self.scale is not None and self.scale != q.shape[3] ** -0.5:
            raise Unserved(f"scale {self.scale} is not 1 / sqrt(head_dim)")
        problem = operands.problem_of(
            SdpaProblem,
            batch=q.shape[0],
            heads_q=q.shape[1],
            heads_kv=k.shape[1],
            seq_q=q.shape[2],
            seq_kv=k.shape[2],
            head_dim=q.shape[3],
            dtype=dtype,
            layout=_layout_of(tensors),
            mask=self.mask,
        )
        o = problem.outputs[0]
        return Request(problem, ("q", "k", "v"), "o", o.shape, o.strides)

    def by_torch(self, *tensors: torch.Tensor) -> torch.Tensor:
        q, k, v = tensors
        mask = causal_lower_right(q.shape[2], k.shape[2]) if self.mask is Mask.CAUSAL_BOTTOM_RIGHT else None
        return functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=self.mask is Mask.CAUSAL, scale=self.scale, enable_gqa=self.enable_gqa
        )


def is_lower_right(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether a mask is torch's `causal_lower_right` for these queries and keys."""
    return (
        isinstance(mask, CausalBias)
        and mask.variant is CausalVariant.LOWER_RIGHT
        and (mask.seq_len_q, mask.seq_len_kv) == (q.shape[-2], k.shape[-2])
    )


def _layout_of(tensors: Tensors) -> SdpaLayout:
    for layout, strides in ((SdpaLayout.BHSD, row_major), (SdpaLayout.BSHD, heads_inside)):
        if all(same_layout(t.shape, t.stride(), strides(t.shape)) for t in tensors):
            return layout
    raise Unserved(
        "queries, keys and values are not all contiguous, nor all [batch, sequence, heads, head_dim] in memory"
    )
