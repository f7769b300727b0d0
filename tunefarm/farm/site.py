"""The workers of one target, and the lane of its problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tunefarm.farm.executor import Building, Measuring, Worker
from tunefarm.farm.lane import Lane
from tunefarm.farm.phases import PhaseClock
from tunefarm.model.target import Target


@dataclass
class Site:
    """A lane with its workers. A worker has at most one call."""

    target: Target
    lane: Lane
    measurers: Sequence[Measuring]
    builders: Mapping[Building, int]
    """Each with its number in the lane."""
    idle_measurers: set[Measuring]
    idle_builders: set[Building]
    clock: PhaseClock = field(default_factory=PhaseClock)

    def look(self) -> None:
        """Account for the time that passed."""
        builders = len(self.builders) - len(self.idle_builders), len(self.builders)
        measurers = len(self.measurers) - len(self.idle_measurers), len(self.measurers)
        self.clock.look(self.lane.phase, builders, measurers)

    def rest(self, worker: Worker) -> None:
        """A worker has no work any more."""
        if isinstance(worker, Measuring):
            self.idle_measurers.add(worker)
        else:
            self.idle_builders.add(worker)
