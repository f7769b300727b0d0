"""How a sweep's time was spent: what compiling and timing by turns leaves idle."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tunefarm.farm.lane import Phase


@dataclass(frozen=True)
class PhaseShares:
    """Seconds of a sweep by phase, and how busy its workers were meanwhile."""

    compile_s: float = 0.0
    measure_s: float = 0.0
    builder_busy_s: float = 0.0
    """Sum over compiling workers of the seconds that they had work, in compile phases."""
    builder_s: float = 0.0
    """Compiling workers times the seconds of compile phases."""
    measurer_busy_s: float = 0.0
    measurer_s: float = 0.0
    """Measuring workers times the seconds of measure phases."""

    @property
    def lost(self) -> float:
        """Share of the time that alternation cost: workers without work although it was their turn.

        0 where every compiling worker was busy through all compile phases and every device through all measure phases.
        """
        total = self.compile_s + self.measure_s
        if not total:
            return 0.0
        idle = 0.0
        if self.builder_s:
            idle += self.compile_s * (1 - self.builder_busy_s / self.builder_s)
        if self.measurer_s:
            idle += self.measure_s * (1 - self.measurer_busy_s / self.measurer_s)
        return idle / total


class PhaseClock:
    """Adds up the time between looks of the sweep loop."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._sums = dict.fromkeys(
            ("compile_s", "measure_s", "builder_busy_s", "builder_s", "measurer_busy_s", "measurer_s"), 0.0
        )

    def look(self, phase: Phase, builders: tuple[int, int], measurers: tuple[int, int]) -> None:
        """Account for the time since the last look.

        Args:
            phase: what the target's workers did meanwhile.
            builders: (busy, all) compiling workers.
            measurers: (busy, all) measuring workers.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        kind, (busy, count) = ("builder", builders) if phase is Phase.COMPILE else ("measurer", measurers)
        self._sums[f"{phase}_s"] += passed
        self._sums[f"{kind}_busy_s"] += passed * busy
        self._sums[f"{kind}_s"] += passed * count

    @property
    def shares(self) -> PhaseShares:
        """What was added up so far."""
        return PhaseShares(**self._sums)
