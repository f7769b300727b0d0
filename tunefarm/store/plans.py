"""Plans in the store: the bytes of finalists, found by their digest."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

import pyarrow.compute as pc
import pyarrow.dataset as ds

from tunefarm.model.candidate import Plan
from tunefarm.model.errors import StoreError
from tunefarm.store.folder import Folder
from tunefarm.store.rows import Row, knobs_json
from tunefarm.store.schema import PLANS
from tunefarm.store.tables import Table

ROW_GROUP = 16
"""Plans that a look-up reads together: with fewer, footers grow; with more, plans are read for nothing."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan, and what it is for."""

    plan: Plan
    problem: str
    """The problem's key."""
    target: str
    """The target's key."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Plans:
    """The table of plans: sorted by digest, in small row groups, so that one plan is read without most others."""

    def __init__(self, folder: Folder) -> None:
        self.table = Table(folder, "plans", PLANS, sort=("digest",), row_group=ROW_GROUP)
        self._indexed: ds.Dataset | None = None
        self._groups: dict[str, ds.Fragment] = {}

    def append(self, plans: Iterable[StoredPlan]) -> None:
        """Publish plans as one part. Raises StoreError."""
        self.table.append([_row(stored) for stored in plans])

    def find(self, digest: str) -> bytes:
        """The bytes of a plan.

        Raises:
            StoreError: the store has no plan of that digest, or other bytes under it.
        """
        row = self.table.steadily(lambda: self._find(digest))
        if row is None:
            raise StoreError(f"the store has no plan {digest}; only finalists are kept: sweep its problem again")
        blob = _unpack(row["packed"], row["raw_bytes"])
        if blob is None or sha256(blob).hexdigest() != digest:
            raise StoreError(f"the bytes stored as plan {digest} are not that plan's; sweep its problem again")
        return blob

    def _find(self, digest: str) -> Row | None:
        dataset = self.table.dataset()
        if dataset is not self._indexed:
            self._groups = dict(_groups_by_digest(dataset))
            self._indexed = dataset
        if digest not in self._groups:
            return None
        found = self._groups[digest].to_table(columns=["packed", "raw_bytes"], filter=pc.field("digest") == digest)
        row: Row = found.to_pylist()[0]
        return row


def _groups_by_digest(dataset: ds.Dataset) -> Iterator[tuple[str, ds.Fragment]]:
    """Every plan's digest, and the row group that holds it."""
    for part in dataset.get_fragments():
        for group in part.split_by_row_group():
            for digest in group.to_table(columns=["digest"]).column("digest").to_pylist():
                yield digest, group


def _row(stored: StoredPlan) -> Row:
    plan = stored.plan
    return {
        "digest": plan.digest,
        "problem": stored.problem,
        "target": stored.target,
        "candidate": plan.candidate.key,
        "engine": plan.candidate.engine,
        "candidate_name": plan.candidate.name,
        "engine_id": plan.candidate.engine_id,
        "resolved_knobs": knobs_json(plan.knobs),
        "workspace_bytes": plan.workspace_bytes,
        "raw_bytes": len(plan.blob),
        "created_at": stored.created_at,
        "packed": zlib.compress(plan.blob),
    }


def _unpack(packed: bytes, size: int) -> bytes | None:
    try:
        return zlib.decompressobj().decompress(packed, size + 1)  # never more than it says it holds
    except (zlib.error, TypeError, ValueError, OverflowError):  # a null, or a size that there is not
        return None
