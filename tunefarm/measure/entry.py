"""One candidate on its way through a session: what is known of it so far, and the outcome that it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tunefarm.measure.estimates import median_interval
from tunefarm.measure.racing import Kind
from tunefarm.measure.timing import Method, TimedBlock
from tunefarm.model.candidate import Plan
from tunefarm.model.trial import Block, Measurement, Outcome, Stage, Standing, Status, Verdict

if TYPE_CHECKING:
    from tunefarm.engines.engine import Executable
    from tunefarm.measure.buffers import Bound

SCREEN_ROUND = -1
FRESH_ROUND = 1000
"""Number of the first round after the choice."""


@dataclass
class Entry:
    """One candidate. Its outcome is set as soon as it fell out."""

    plan: Plan
    executable: Executable | None = None
    verdict: Verdict | None = None
    load_ms: float = 0.0
    first_call_ms: float = 0.0
    launches_us: dict[str, float] = field(default_factory=dict)
    """Screen: microseconds of a launch by step, `first`, `single` or `block`."""
    screen_method: Method = "events"
    screened: str = ""
    """Why it was left out of the race; empty if it was not."""
    launches: int = 0
    method: Method = "events"
    race_us: list[float] = field(default_factory=list)
    fresh_us: list[float] = field(default_factory=list)
    eager_us: float | None = None
    replay_us: float | None = None
    sets: list[Bound] = field(default_factory=list)
    block: TimedBlock | None = None
    outcome: Outcome | None = None

    @property
    def key(self) -> str:
        """The candidate's key."""
        return self.plan.candidate.key

    @property
    def label(self) -> str:
        """The candidate's name for people."""
        return self.plan.candidate.label

    @property
    def kind(self) -> Kind:
        """What it is to the choice."""
        if self.plan.candidate.is_default:
            return Kind.DEFAULT
        return Kind.BASELINE if self.rounds_between else Kind.ORDINARY

    @property
    def rounds_between(self) -> bool:
        """Whether its operations round their results one by one, as torch's do."""
        return self.plan.candidate.engine == "torch"

    @property
    def time_us(self) -> float:
        """The best estimate so far: from fresh rounds, the race, or the screen."""
        samples = self.fresh_us or self.race_us or list(self.launches_us.values())[-1:]
        return median_interval(samples)[0] if samples else math.inf

    def fall_out(self, status: Status, stage: Stage, reason: str) -> Outcome:
        """Set the outcome of a candidate that isn't measured."""
        self.outcome = Outcome(self.plan.candidate, status, stage, reason, verdict=self.verdict)
        self.executable = self.block = None
        self.sets = []
        return self.outcome

    def measured(self, standing: Standing, why: str) -> Outcome:
        """Set the outcome of a candidate that was verified and timed."""
        self.outcome = Outcome(
            self.plan.candidate,
            Status.MEASURED,
            Stage.TIME,
            verdict=self.verdict,
            measurement=self._measurement(),
            standing=standing,
            why=why,
        )
        return self.outcome

    def _measurement(self) -> Measurement:
        raced = [Block(i, self.launches, us) for i, us in enumerate(self.race_us)]
        fresh = [Block(FRESH_ROUND + i, self.launches, us) for i, us in enumerate(self.fresh_us)]
        method = self.method if raced or fresh else self.screen_method
        screen = [Block(SCREEN_ROUND, self._screen_launches, us) for us in list(self.launches_us.values())[-1:]]
        blocks = (*(screen if self.screen_method == method else ()), *raced, *fresh)
        median, low, high = median_interval([b.us for b in fresh or raced or screen])
        return Measurement(
            median,
            low,
            high,
            method,
            blocks,
            self.load_ms,
            self.first_call_ms,
            self.eager_us,
            self.replay_us,
        )

    @property
    def _screen_launches(self) -> int:
        return 1
