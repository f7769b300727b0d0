"""Compaction: many parts become few, and no reader notices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tunefarm.store.parts import Piece
from tunefarm.store.tables import Table

PART_BYTES = 2**26
"""A compacted part's size, about: it is made in memory, and a million trials should be few files."""
GRACE = timedelta(hours=1)
"""How long replaced parts stay for readers that have begun on them."""


@dataclass(frozen=True)
class Compacted:
    """What became of one table."""

    table: str
    before: int
    """Parts that readers had to open."""
    after: int
    removed: int
    """Files of parts that were replaced long enough ago."""


def compact(table: Table, *, grace: timedelta = GRACE, part_bytes: int = PART_BYTES) -> Compacted:
    """Put small parts together, and remove those that were replaced longer ago than `grace`.

    Killed at any moment it leaves a store of the same rows. Writers, readers and other compactions may run beside it.

    Raises:
        StoreError: the store can't be read or written.
    """
    before = len(table.parts.sound())

    def put_together() -> None:
        for group in list(_groups(table.parts.sound(), part_bytes)):
            table.replace(group)

    table.steadily(put_together)
    removed = remove_replaced(table, grace)
    return Compacted(table.name, before, len(table.parts.sound()), removed)


def remove_replaced(table: Table, grace: timedelta) -> int:
    """Remove parts whose rows others hold since longer than `grace`; returns how many. Raises StoreError."""
    now = datetime.now(UTC)
    superseded = table.parts.superseded()
    reading = [piece.part for piece in table.parts.sound()]
    since = {name: part.made_at for part in reading for name in part.covers}
    old = [part for part in superseded if all(name in since and now - since[name] >= grace for name in part.covers)]
    if old:
        table.parts.remove(old)
    return len(old)


def _groups(pieces: Sequence[Piece], part_bytes: int) -> Iterator[list[Piece]]:
    """Pieces that are to become one part each: the small ones, in the order of their names, and those that overlap."""
    group: list[Piece] = []
    for piece in pieces:
        if piece.part.size > part_bytes // 2 and not piece.without:
            continue
        if group and _bytes(group) + piece.part.size > part_bytes:
            yield from _worth(group)
            group = []
        group.append(piece)
    yield from _worth(group)


def _worth(group: list[Piece]) -> Iterator[list[Piece]]:
    if len(group) > 1 or any(piece.without for piece in group):
        yield group


def _bytes(group: Sequence[Piece]) -> int:
    return sum(piece.part.size for piece in group)
