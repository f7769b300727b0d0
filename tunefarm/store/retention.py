"""Retention: rows and bytes that nobody will ask for again, dropped on request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tunefarm.store.tables import Table

Places = Mapping[str, pa.Array]
"""Rows by their place: the part that they were first written in, and their rows in it."""

SUPERSEDED = """SELECT part, part_row FROM all_trials WHERE finished_at < TIMESTAMPTZ '{before}'
    EXCEPT SELECT part, part_row FROM trials"""
LOSERS_BLOCKS = """SELECT part, part_row FROM all_trials WHERE finished_at < TIMESTAMPTZ '{before}' AND len(blocks) > 0
    AND standing IN ('slower', 'screened') AND engine <> 'torch' AND NOT is_default"""
UNNAMED_PLANS = """SELECT part, part_row FROM plans WHERE created_at < TIMESTAMPTZ '{before}' AND digest NOT IN (
    SELECT plan_digest FROM all_trials WHERE plan_digest IS NOT NULL AND (
        (finished_at < TIMESTAMPTZ '{before}') IS NOT TRUE OR
        (part, part_row) IN (SELECT (part, part_row) FROM trials)))"""
"""What may go: rows that a later one of the same key superseded, blocks of candidates that lost to a winner (not of the
baselines), plans that none of the other rows names. The latest row of a key stays, and so every winner."""


@dataclass(frozen=True)
class Pruned:
    """What was dropped, or would be."""

    superseded: int
    """Rows of trials."""
    blocks: int
    """Trials whose timed blocks were dropped; their medians and intervals stay."""
    plans: int


def places(found: pa.Table) -> Places:
    """Rows (part, part_row), by part."""
    grouped = found.group_by("part").aggregate([("part_row", "list")])
    return {row["part"]: pa.array(row["part_row_list"], pa.int64()) for row in grouped.to_pylist()}


def drop_rows(table: Table, rows: Places) -> None:
    """Rewrite the parts that hold these rows, without them. Raises StoreError."""
    _rewrite(table, rows, lambda found, gone: found.filter(pc.invert(gone)))


def drop_blocks(table: Table, rows: Places) -> None:
    """Rewrite the parts that hold these trials, with no timed blocks in them. Raises StoreError."""

    def without(found: pa.Table, gone: Any) -> pa.Table:
        column = found.schema.field("blocks")
        none = pa.array([[]], column.type)
        kept = found.column("blocks").combine_chunks()
        blocks = pc.if_else(gone, none[0], kept)
        return found.set_column(found.schema.get_field_index("blocks"), column, blocks)

    _rewrite(table, rows, without)


def _rewrite(table: Table, rows: Places, change: Callable[[pa.Table, Any], pa.Table]) -> None:
    def rewrite() -> None:
        for piece in table.parts.sound():
            meant = {part: rows[part] for part in piece.part.covers - piece.without if part in rows}
            if meant:
                table.replace([piece], partial(_changed, change, meant))

    table.steadily(rewrite)


def _changed(change: Callable[[pa.Table, Any], pa.Table], meant: Places, found: pa.Table) -> pa.Table:
    return change(found, _are(found, meant))


def _are(found: pa.Table, meant: Places) -> Any:
    """Which rows are at these places."""
    wanted = pa.table(
        {
            "part": pa.array([part for part, numbers in meant.items() for _ in numbers], pa.string()),
            "part_row": pa.concat_arrays(list(meant.values())),
            "meant": pa.repeat(True, sum(len(numbers) for numbers in meant.values())),
        }
    )
    numbered = pa.table(
        {"part": found.column("part"), "part_row": found.column("part_row"), "at": pa.array(range(len(found)))}
    )
    joined = numbered.join(wanted, ["part", "part_row"], join_type="left outer").sort_by("at")
    return joined.column("meant").fill_null(False).combine_chunks()
