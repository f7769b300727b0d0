"""Merging: every row of one store into another, as often as one likes."""

from tunefarm.model.errors import StoreError
from tunefarm.store.folder import said
from tunefarm.store.tables import Table


def merge_table(source: Table, into: Table) -> int:
    """Copy the parts that the other table has not; returns how many rows they hold.

    A part keeps its name, so that one that was copied before, or is held by a compacted part, is not copied again.

    Raises:
        StoreError: one of the stores can't be read or written.
    """
    there = {name for piece in into.parts.sound() for name in piece.part.covers}
    rows = 0
    for piece in source.parts.sound():
        if piece.part.covers <= there:
            continue
        try:
            data = source.parts.content(piece.part)
        except OSError as error:
            raise StoreError(f"can't read part {piece.part.name}: {said(error)}; merge again") from error
        into.parts.publish(piece.part, data)
        there |= piece.part.covers
        rows += piece.part.rows
    return rows
