"""What a sweep tells of itself while it runs."""

from dataclasses import dataclass, field
from typing import Protocol

from tunefarm.model.trial import Stage, Status


@dataclass(frozen=True)
class SweepState:
    """How far a sweep is. Counts are of this run: what the store held before is in none but `problems_done`."""

    problems_total: int
    problems_done: int
    """Problems of which every candidate has its row."""
    candidates_proposed: int
    built: int
    build_failed: int
    """Candidates that have no plan: declined, failed, crashed or timed out before they were built."""
    verified: int
    """Plans whose results were right."""
    wrong: int
    crashed: int
    """Plans whose process died, or hung until its deadline, when they were loaded, verified or timed."""
    failed: int
    """Plans that raised an error or were declined when they were loaded, verified or timed."""
    measured: int
    best: tuple[str, ...]
    """The latest winners, newest last: `label winner gain`, such as `mlp.up cudnn:eng4_k24=3 1.21x`."""
    elapsed_s: float
    eta_s: float | None
    """Seconds that are left, as far as one can tell; None while one can't."""
    phase: str
    """What the farm is doing, in words: `starting workers`, `compile`, `measure`."""
    ended: dict[Stage, dict[Status, int]] = field(default_factory=dict)
    """Trials of this run by the last stage that they reached, and by how they ended."""

    @property
    def trials(self) -> int:
        """Trials of this run."""
        return sum(sum(counts.values()) for counts in self.ended.values())

    @property
    def trials_per_s(self) -> float:
        """Trials of this run by its time."""
        return self.trials / self.elapsed_s if self.elapsed_s else 0.0


class Progress(Protocol):
    """Whoever shows it. Called by the driver, in its main thread, at most about ten times a second."""

    def update(self, state: SweepState) -> None:
        """Show the state."""
