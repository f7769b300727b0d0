"""Device memory that a plan needs beside its tensors: at one address for as long as anything may use it."""

from __future__ import annotations

import torch


class Workspaces:
    """One loaded plan's workspaces, one for each stream that it ran on.

    They never grow, since a plan's need never changes, and never move, since they are kept as long as the plan. Work on
    one stream is in order, so that a stream's launches can share one; those of two streams can't.

    A captured CUDA graph gets workspaces of its own, out of the graph's memory: it may be replayed on any stream,
    beside others, and lives as long as it likes.
    """

    def __init__(self, size: int, device: torch.device, *, zeroed: bool) -> None:
        """Nothing is allocated yet.

        Args:
            size: bytes, above 0.
            device: where.
            zeroed: whether the plan counts on zeros before its first launch. It leaves zeros behind.
        """
        self._size = size
        self._device = device
        self._new = torch.zeros if zeroed else torch.empty
        self._of_stream: dict[int, torch.Tensor] = {}

    def __call__(self, stream: int) -> torch.Tensor:
        """The workspace for one launch on the current stream, which has this address."""
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return self._allocate()  # back in the graph's pool, for its next node, once the launch is captured
        workspace = self._of_stream.get(stream)
        if workspace is None:
            workspace = self._of_stream[stream] = self._allocate()
        return workspace

    def _allocate(self) -> torch.Tensor:
        return self._new(self._size, dtype=torch.uint8, device=self._device)
