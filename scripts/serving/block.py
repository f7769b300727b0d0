"""The decoder block of Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tunefarm.model.problem import Problem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import SdpaProblem

BATCHES = (1, 16, 64, 256)

CONTEXT = 1024
"""Keys that each sequence of the decoder block attends to."""

HIDDEN, MLP, HEADS, KEY_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128


def block_problems() -> list[Problem]:
    """What a decoder block calls when it decodes one token for each of a batch of sequences."""
    layers = ((HIDDEN + 2 * KEY_HEADS * HEAD_DIM, HIDDEN), (HIDDEN, HIDDEN), (2 * MLP, HIDDEN), (HIDDEN, MLP))
    problems: list[Problem] = []
    for batch in BATCHES:
        problems += [MatmulProblem(m=batch, n=n, k=k, transpose_b=True) for n, k in layers]
        problems.append(
            SdpaProblem(batch=batch, heads_q=HEADS, heads_kv=KEY_HEADS, seq_q=1, seq_kv=CONTEXT, head_dim=HEAD_DIM)
        )
    return problems


class Block(nn.Module):
    """A decoder block as it decodes: one token of each sequence, whose keys and values are in a cache."""

    def __init__(self, batch: int, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.qkv = nn.Linear(HIDDEN, HIDDEN + 2 * KEY_HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, KEY_HEADS, CONTEXT, HEAD_DIM))
        self.register_buffer("turn", torch.randn(2, HEAD_DIM))

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        heads = self.qkv(self.norms[0](x)).view(batch, HEADS + 2 * KEY_HEADS, 1, HEAD_DIM)
        q, k, v = heads.split([HEADS, KEY_HEADS, KEY_HEADS], dim=1)
        self.keys[:, :, -1:] = self._turned(k)
        self.values[:, :, -1:] = v
        o = self.attend(self._turned(q).contiguous(), self.keys, self.values, enable_gqa=True)
        x = x + self.out(o.reshape(batch, HIDDEN))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)

    def _turned(self, t: Tensor) -> Tensor:
        """Rotary position embedding."""
        first, second = t.chunk(2, dim=-1)
        return t * self.turn[0] + torch.cat((-second, first), dim=-1) * self.turn[1]


def make_block(batch: int, attend: Callable[..., Tensor]) -> Block:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Block(batch, attend).bfloat16().eval()
