"""Proposals in the store: what engines offered, so that they need not be asked again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

import pyarrow.compute as pc

from tunefarm.model.candidate import Candidate, Proposal
from tunefarm.store.folder import Folder
from tunefarm.store.plain_json import load_list, load_object
from tunefarm.store.rows import STRANGE, Row
from tunefarm.store.schema import PLACE_ORDER, PROPOSALS
from tunefarm.store.tables import Table, dated


@dataclass(frozen=True)
class StoredProposal:
    """An engine's proposal, and what it was asked."""

    problem: str
    """The problem's key."""
    target: str
    """The target's key."""
    search: str
    """The search's key."""
    proposal: Proposal
    proposed_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Proposals:
    """The table of proposals."""

    def __init__(self, folder: Folder) -> None:
        self.table = Table(folder, "proposals", PROPOSALS)

    def append(self, proposals: Iterable[StoredProposal]) -> None:
        """Publish proposals as one part. Raises StoreError."""
        self.table.append([_row(stored) for stored in proposals])

    def latest(self, target: str) -> dict[tuple[str, str, str], Proposal]:
        """The latest answer for each (problem, search, engine) of a target. Raises StoreError."""
        rows = self.table.read(PROPOSALS.names, pc.field("target") == target)
        rows = dated(rows, "proposed_at").sort_by([("proposed_at", "ascending"), *PLACE_ORDER])
        latest = {(row["problem"], row["search"], row["engine"]): row for row in rows.to_pylist()}
        return {key: found for key, row in latest.items() if (found := _proposal(row)) is not None}


def _row(stored: StoredProposal) -> Row:
    proposal = stored.proposal
    return {
        "problem": stored.problem,
        "target": stored.target,
        "search": stored.search,
        "engine": proposal.engine,
        "candidates_json": json.dumps([c.to_dict() for c in proposal.candidates], separators=(",", ":")),
        "refusal": proposal.refusal,
        "proposed_at": stored.proposed_at,
    }


def _candidates(text: str) -> tuple[Candidate, ...]:
    """The candidates of a JSON list, each text read once: a store has millions, of some thousand kinds."""
    try:
        if text.startswith("[{") and text.endswith("}]"):
            return tuple(map(_candidate, text[2:-2].split("},{")))
    except STRANGE:  # it was split inside a text: what is on either side is no JSON
        pass
    return tuple(map(Candidate.from_dict, load_list(text)))


@lru_cache(maxsize=1 << 16)
def _candidate(inside: str) -> Candidate:
    return Candidate.from_dict(load_object(f"{{{inside}}}"))


def _proposal(row: Row) -> Proposal | None:
    try:
        candidates = _candidates(row["candidates_json"])
    except STRANGE:  # another version's candidates: the engine is asked again
        return None
    return Proposal(row["engine"], candidates, row["refusal"])
