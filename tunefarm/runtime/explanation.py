"""The whole story of one problem in a plan book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunefarm.model.problem import Problem
from tunefarm.runtime.chain import Decision
from tunefarm.runtime.ledger import Cause, Step
from tunefarm.runtime.lookup import Found, Hit


@dataclass(frozen=True)
class Explanation:
    """What the bundle has for a problem on a device, what was decided, and what answered its calls. Prints as text."""

    problem: Problem
    device: str
    found: Found
    """The entry that fits, or why none does; every other entry of the problem with its reason."""
    decision: Decision | None
    """What serves the problem, and why each earlier step of the chain does not; None before its first call."""
    calls: Mapping[tuple[Step, Cause | None], int]
    """Calls up to now, by the step that answered, and the cause where torch did."""

    def __str__(self) -> str:
        lines = [f"{self.problem.label} on {self.device}"]
        if isinstance(self.found, Hit):
            entry, target = self.found.offer.entry, self.found.offer.target
            lines.append(
                f"  bundle: {entry.candidate.label}, {entry.figures.time_us:.4g} us on {target.label}; {entry.why}"
            )
        else:
            lines.append(f"  bundle: no plan; {self.found.reason}")
        lines += [
            f"  not used: {rejected.offer.entry.candidate.label} of {rejected.offer.target.label}; {rejected.reason}"
            for rejected in self.found.rejected
        ]
        if self.decision is None:
            lines.append("  nothing is loaded yet: the first call or warm() does that")
        else:
            lines += [f"  {skipped.step}: no; {skipped.reason}" for skipped in self.decision.skipped]
            candidate = self.decision.candidate
            lines.append(f"  {self.decision.step}: {candidate.label if candidate else 'torch eager'} serves")
        for (step, cause), calls in self.calls.items():
            because = f" ({cause.value})" if cause else ""
            lines.append(f"  {calls} {'call' if calls == 1 else 'calls'} answered by {step}{because}")
        return "\n".join(lines)
