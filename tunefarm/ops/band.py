"""Bands: which keys each query of an attention may see, when it depends on their distance alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Band:
    """Query i sees key j where i + first <= j <= i + last; None for a side without bound."""

    seq_q: int
    seq_kv: int
    first: int | None
    last: int | None

    @property
    def bounded(self) -> bool:
        """Whether any side has a bound."""
        return self.first is not None or self.last is not None

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees."""
        before_end = self.seq_q * self.seq_kv if self.last is None else self._keys_before(self.last + 1)
        before_start = 0 if self.first is None else self._keys_before(self.first)
        return before_end - before_start

    @property
    def keys(self) -> int:
        """Keys that at least one query sees: they are consecutive, since the band moves one key a query."""
        start = 0 if self.first is None else max(0, self.first)
        end = self.seq_kv if self.last is None else min(self.seq_kv, self.seq_q + self.last)
        return max(0, end - start)

    def seen(self, start: int, stop: int, device: torch.device) -> torch.Tensor:
        """Bool tensor [stop - start, seq_kv]: whether queries start to stop - 1 see each key."""
        import torch

        distance = torch.arange(self.seq_kv, device=device) - torch.arange(start, stop, device=device)[:, None]
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.first is not None:
            seen &= distance >= self.first
        if self.last is not None:
            seen &= distance <= self.last
        return seen

    def _keys_before(self, offset: int) -> int:
        """Sum over queries i of the keys j < i + offset."""

        def up_to(last: int) -> int:
            """Sum of min(x, seq_kv) over x = 1 .. last."""
            rising = max(0, min(last, self.seq_kv))
            return rising * (rising + 1) // 2 + max(0, last - self.seq_kv) * self.seq_kv

        return up_to(self.seq_q - 1 + offset) - up_to(offset - 1)
