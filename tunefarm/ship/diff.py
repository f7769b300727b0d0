"""What changes for whom, from one bundle to another: by choices, not by bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunefarm.model.target import Target
from tunefarm.runtime.manifest import Entry, Manifest


class Kind(StrEnum):
    """What became of the choice for a problem on a target."""

    ADDED = "added"
    REMOVED = "removed"
    WITHDRAWN = "withdrawn"
    """Removed, and its plan is never to be used again."""
    CHANGED = "changed"
    """Another candidate."""
    REBUILT = "rebuilt"
    """The same candidate, other bytes."""
    SAME = "same"


@dataclass(frozen=True)
class Change:
    """One problem on one target."""

    kind: Kind
    target: Target
    before: Entry | None
    after: Entry | None

    @property
    def entry(self) -> Entry:
        """The newer of the two."""
        entry = self.after or self.before
        assert entry
        return entry

    @property
    def ratio(self) -> float | None:
        """The former choice's time over the newer one's; None unless both were timed in one way and cache state.

        The two may be of two days and boards: a hint, no measurement.
        """
        if self.before is None or self.after is None:
            return None
        old, new = self.before.figures, self.after.figures
        alike = (old.method, old.cache) == (new.method, new.cache)
        return old.time_us / new.time_us if alike and new.time_us > 0 else None


def diff_manifests(before: Manifest, after: Manifest) -> tuple[Change, ...]:
    """Every problem and target of either bundle, in the order of the newer one, then those it no longer has."""
    targets = {target.key: target for target in (*before.targets, *after.targets)}
    old = {(entry.problem.key, entry.target): entry for entry in before.entries}
    new = {(entry.problem.key, entry.target): entry for entry in after.entries}
    withdrawn = set(after.withdrawn)
    return tuple(
        Change(_kind(old.get(key), new.get(key), withdrawn), targets[key[1]], old.get(key), new.get(key))
        for key in dict.fromkeys([*new, *old])
    )


def _kind(before: Entry | None, after: Entry | None, withdrawn: set[str]) -> Kind:
    if before is None:
        return Kind.ADDED
    if after is None:
        return Kind.WITHDRAWN if before.digest in withdrawn else Kind.REMOVED
    if before.candidate.key != after.candidate.key:
        return Kind.CHANGED
    return Kind.SAME if before.digest == after.digest else Kind.REBUILT
