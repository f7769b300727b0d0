"""One table of the store: rows in, a dataset of sound parts out."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tunefarm.model.errors import StoreError
from tunefarm.store.folder import Folder
from tunefarm.store.parts import Damage, Parts, Piece, new_part, new_part_name

T = TypeVar("T")

UNREADABLE = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)
"""What pyarrow raises for a damaged file (UnicodeDecodeError where a footer's text is)."""

_TIMES = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
CLUSTERED_GROUP = 4096
"""Rows of a compacted part that are read together: with fewer, footers grow; with more, rows are read for nothing."""
_CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class Table:
    """A table in parts. Writing is safe from many processes at once; reading sees finished parts only."""

    def __init__(
        self,
        folder: Folder,
        name: str,
        schema: pa.Schema,
        *,
        sort: Sequence[str] = (),
        row_group: int | None = None,
        cluster: Sequence[str] = (),
    ) -> None:
        """`sort`: columns that each part is sorted by; `cluster`: those that compacted parts are, if it has no `sort`.

        `row_group`: rows that are read together, None for all of a part, and `CLUSTERED_GROUP` of a compacted one.
        """
        self.name = name
        self.parts = Parts(folder, name, self._objection)
        self._folder = folder
        self._schema = schema
        self._sort = tuple(sort)
        self._cluster = tuple(sort or cluster)
        self._row_group = row_group
        self._dataset: ds.Dataset | None = None
        self._dataset_pieces: tuple[Piece, ...] = ()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Publish rows as one part, so that readers see all of them or none.

        Raises:
            StoreError: the part can't be written.
        """
        if not rows:
            return
        stored = [{**row, **_storable(row)} for row in rows]
        self.append_table(pa.Table.from_pylist(stored, schema=self._schema))

    def append_table(self, rows: pa.Table) -> None:
        """Publish rows of the table's schema as one part; their place is set here. Raises StoreError."""
        name = new_part_name()
        if self._sort:
            rows = rows.sort_by([(column, "ascending") for column in self._sort])
        for column, values in (
            ("part", pa.repeat(name, len(rows))),
            ("part_row", pa.array(range(len(rows)), pa.int64())),
        ):
            index = self._schema.get_field_index(column)
            rows = rows.set_column(index, self._schema.field(index), values)
        data = self._parquet(rows, self._row_group, self._sort)
        self.parts.publish(new_part(name, data, len(rows)), data)

    def replace(self, pieces: Sequence[Piece], keep: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> None:
        """Publish one part that holds what some pieces do, and has readers leave them.

        Args:
            pieces: of `parts.sound()`.
            keep: their rows, or fewer, or changed ones; each keeps its place.

        Raises:
            StoreError: the part can't be written.
            UNREADABLE: one of these, if a piece can't be read.
        """
        rows = keep(pa.concat_tables([self._rows(piece) for piece in pieces]))
        rows = rows.sort_by([(column, "ascending") for column in (*self._cluster, "part", "part_row")])
        data = self._parquet(rows, self._row_group or CLUSTERED_GROUP, self._cluster)
        covered = frozenset().union(*(piece.part.covers - piece.without for piece in pieces))
        generation = 1 + max(piece.part.generation for piece in pieces)
        self.parts.publish(new_part(new_part_name(), data, len(rows), covered, generation), data)

    def dataset(self) -> ds.Dataset:
        """The sound parts, to be scanned."""
        pieces = self.parts.sound()
        if (
            self._dataset is None or pieces != self._dataset_pieces
        ):  # kept, since it holds every footer that it has read
            whole = ds.dataset(
                [piece.address for piece in pieces if not piece.without],
                schema=self._schema,
                format=_CHECKED,
                filesystem=self._folder.system,
            )
            shared = [ds.dataset(self._rows(piece)) for piece in pieces if piece.without]
            self._dataset = ds.dataset([whole, *shared]) if shared else whole
            self._dataset_pieces = pieces
        return self._dataset

    def read(self, columns: Sequence[str], where: ds.Expression | None = None) -> pa.Table:
        """The columns named, of the rows that pass. Raises StoreError as `steadily` does."""
        return self.steadily(lambda: self.dataset().to_table(columns=list(columns), filter=where))

    def steadily(self, scan: Callable[[], T]) -> T:
        """What a scan of the dataset gives; if a part breaks or goes away meanwhile, what it gives without that part.

        Raises:
            StoreError: that happened twice.
        """
        try:
            return scan()
        except UNREADABLE:
            self.recheck()
        try:
            return scan()
        except UNREADABLE as error:
            raise StoreError(f"can't read the store: {error}; is something else changing its files?") from error

    def recheck(self) -> bool:
        """Check every part's content anew, and say whether that changed what is readable."""
        self._dataset = None
        return self.parts.recheck()

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Parts that the latest reading left out."""
        return self.parts.damage

    def _rows(self, piece: Piece) -> pa.Table:
        """The rows of a piece, all columns."""
        part = ds.dataset([piece.address], schema=self._schema, format=_CHECKED, filesystem=self._folder.system)
        return part.to_table(filter=~pc.field("part").isin(pa.array(sorted(piece.without), pa.string())))

    def _parquet(self, rows: pa.Table, row_group: int | None, sort: Sequence[str]) -> bytes:
        # Built in memory: a ParquetWriter on a file leaves a valid file with rows missing when an exception passes it.
        sink = pa.BufferOutputStream()
        pq.write_table(
            rows,
            sink,
            row_group_size=row_group,
            compression={field.name: "NONE" if field.type == pa.binary() else "ZSTD" for field in self._schema},
            write_page_checksum=True,
            write_page_index=bool(sort),
            sorting_columns=[pq.SortingColumn(self._schema.get_field_index(column)) for column in sort] or None,
            store_schema=False,
        )
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def _objection(self, address: str) -> str | None:
        try:
            found = _CHECKED.inspect(address, self._folder.system)
        except UNREADABLE as error:
            return f"it is no Parquet file ({error})"
        return None if _fits(found, self._schema) else "its columns are not those of this version's table"


def _fits(found: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a part can be read as rows of a table: an earlier version's lack columns that came later, null then."""
    names = set(schema.names)
    return len(set(found.names)) == len(found.names) and all(
        field.name in names and _is_part_of(field.type, schema.field(field.name).type) for field in found
    )


def _is_part_of(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether it is that type, or a record of some of its fields, or a list of such."""
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        return _fits(pa.schema(list(found)), pa.schema(list(kind)))
    if pa.types.is_list(found) and pa.types.is_list(kind):
        return _is_part_of(found.value_type, kind.value_type)
    return bool(found.equals(kind))


def dated(rows: pa.Table, column: str) -> pa.Table:
    """The rows whose time is one that Python knows."""
    first, last = (pa.scalar(time, rows.schema.field(column).type) for time in _TIMES)
    return rows.filter((pc.field(column) >= first) & (pc.field(column) <= last))


def _storable(row: Mapping[str, Any]) -> dict[str, str]:
    """Texts to be stored instead: those of crashed processes may hold lone surrogates, which no Parquet file can."""
    return {
        column: value.encode("utf-8", "replace").decode()
        for column, value in row.items()
        if isinstance(value, str) and not value.isascii()
    }
