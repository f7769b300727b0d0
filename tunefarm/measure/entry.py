"""One candidate on its way through a session: what is known of it so far, and the outcome that it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tunefarm.measure.estimates import median_interval
from tunefarm.measure.racing import Kind
from tunefarm.measure.timing import Method, Rotation, TimedBlock
from tunefarm.measure.verify import worst
from tunefarm.model.candidate import Plan
from tunefarm.model.trial import FIRST_FRESH_ROUND, Block, Check, Measurement, Outcome, Stage, Standing, Status, Verdict

if TYPE_CHECKING:
    from tunefarm.engines.engine import Executable
    from tunefarm.measure.buffers import Bound

SCREEN_ROUND = -1


@dataclass(frozen=True)
class Samples:
    """Times that were taken in one way, in microseconds of one launch."""

    method: Method
    launches: int
    us: list[float] = field(default_factory=list)

    def blocks(self, first_round: int, step: int = 1) -> list[Block]:
        """As blocks, whose rounds go up from the first."""
        return [Block(first_round + step * i, self.launches, us) for i, us in enumerate(self.us)]


@dataclass(frozen=True)
class Prepared:
    """A block of launches, ready to be timed any number of times."""

    sets: list[Bound]
    """Each with tensors of its own; launch i of the block is of set i modulo their number."""
    rotation: Rotation
    method: Method
    run: TimedBlock
    uncaptured: str = ""
    """Why it is not the CUDA graph that was asked for; empty if it is what was asked for."""


@dataclass
class Entry:
    """One candidate. Its outcome is set as soon as it fell out, else at the end."""

    plan: Plan
    executable: Executable | None = None
    verdict: Verdict | None = None
    load_ms: float = 0.0
    first_call_ms: float = 0.0
    early: Samples | None = None
    """A launch while it was verified, not the first."""
    single: Samples | None = None
    """A launch by itself; two if the first seemed too slow."""
    screen: Samples | None = None
    """Its block or blocks of the screen."""
    screened: str = ""
    """Why it is not in the race; empty if it is, or if that is not known yet."""
    prepared: Prepared | None = None
    """Its block of the race."""
    race: Samples | None = None
    fresh: Samples | None = None
    """From rounds after the choice."""
    eager_us: float | None = None
    replay_us: float | None = None
    proven: bool = False
    """Whether it was held to what finalists are held to."""
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
    def latest(self) -> Samples:
        """Its most careful samples so far."""
        taken = (self.fresh, self.race, self.screen, self.single, self.early)
        return next(samples for samples in taken if samples and samples.us)

    @property
    def median_us(self) -> float:
        """Median of its most careful samples so far."""
        return median_interval(self.latest.us)[0]

    @property
    def least_us(self) -> float:
        """The least of its times so far: what the screen judges by."""
        return min(us for samples in (self.early, self.single, self.screen) if samples for us in samples.us)

    @property
    def error(self) -> float:
        """Relative error (L2) of its worst output."""
        return worst(self.verdict) if self.verdict else math.inf

    @property
    def is_deterministic(self) -> bool:
        """Whether it was seen to give equal bits for equal inputs."""
        return self.verdict is not None and self.verdict.deterministic is True

    def pass_checks(self, *checks: Check) -> None:
        """Note in its verdict what it was held to."""
        assert self.verdict
        self.verdict = self.verdict.passed(*checks)

    def fall_out(self, status: Status, stage: Stage, reason: str) -> Outcome:
        """Set the outcome of a candidate that isn't measured, and let go of what it held."""
        self.outcome = Outcome(self.plan.candidate, status, stage, reason, verdict=self.verdict)
        self.executable = self.prepared = None
        return self.outcome

    def finish(self, standing: Standing, why: str) -> None:
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

    def _measurement(self) -> Measurement:
        latest = self.latest
        screened = self.screen or self.single or self.early
        blocks = screened.blocks(SCREEN_ROUND, step=0) if screened and screened.method == latest.method else []
        blocks += self.race.blocks(0) if self.race else []
        blocks += self.fresh.blocks(FIRST_FRESH_ROUND) if self.fresh else []
        median, low, high = median_interval(latest.us)
        return Measurement(
            time_us=median,
            low_us=low,
            high_us=high,
            method=latest.method,
            blocks=tuple(blocks),
            load_ms=self.load_ms,
            first_call_ms=self.first_call_ms,
            eager_us=self.eager_us,
            replay_us=self.replay_us,
        )
