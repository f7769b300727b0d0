"""The least time that a launch can take on a device: whatever reads below it was not measured, or not done. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm.measure.timing import Rotation
from tunefarm.model.problem import Problem

MARGIN = 1.3
"""How far above a measured ceiling a figure must be to be called impossible: well above the ceiling's own error."""


@dataclass(frozen=True)
class Ceilings:
    """What a device was seen to reach."""

    bytes_per_us: float
    """Memory traffic of a large copy, read and written."""
    flops_per_us: float
    """Arithmetic of a large 16-bit product."""
    l2_bytes: int

    def objection(self, problem: Problem, rotation: Rotation, us: float) -> str:
        """Why a time can't be; empty if it can.

        Memory counts only where launches meet tensors that are not in L2, and less what L2 may hold back: writes that
        have not left it when the block ends, and reads of a large set that was not swept out.
        """
        compute = problem.flops / self.flops_per_us
        if us * MARGIN < compute:
            return _text(us, compute, f"{self.flops_per_us / 1e6:.0f} TFLOP/s")
        memory = self._bytes(problem, rotation) / self.bytes_per_us
        if us * MARGIN < memory:
            return _text(us, memory, f"{self.bytes_per_us / 1e6:.2f} TB/s")
        return ""

    def _bytes(self, problem: Problem, rotation: Rotation) -> float:
        if rotation.sweep:
            written = sum(t.elements * t.dtype.size for t in problem.outputs)
            return problem.bytes_moved - min(written, self.l2_bytes / rotation.launches)
        if rotation.sets > 1:
            return max(0, problem.bytes_moved - self.l2_bytes)
        return 0


def _text(us: float, least: float, ceiling: str) -> str:
    return f"{us:.1f} us is impossible: at {ceiling}, the most that this device was seen to reach, it takes {least:.1f}"
