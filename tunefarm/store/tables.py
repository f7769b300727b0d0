"""One table of the store: rows in, a dataset of sound parts out."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from tunefarm.model.errors import StoreError
from tunefarm.store.parts import Damage, Folder, Parts, new_part_name

T = TypeVar("T")

UNREADABLE = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)
"""What pyarrow raises for a damaged file (UnicodeDecodeError where a footer's text is)."""

_TIMES = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
_DISK = pa_fs.LocalFileSystem()
_CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class Table:
    """A table in parts. Writing is safe from many processes at once; reading sees finished parts only."""

    def __init__(
        self, folder: Folder, name: str, schema: pa.Schema, *, sort: str | None = None, row_group: int | None = None
    ) -> None:
        """`sort`: column that each part is sorted by; `row_group`: rows that are read together, None for all."""
        self._schema = schema
        self._sort = sort
        self._row_group = row_group
        self._parts = Parts(folder, name, self._objection)
        self._dataset: ds.Dataset | None = None
        self._dataset_parts: tuple[Path, ...] = ()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Publish rows as one part, so that readers see all of them or none.

        Raises:
            StoreError: the part can't be written.
        """
        if not rows:
            return
        name = new_part_name()
        ordered = rows if (sort := self._sort) is None else sorted(rows, key=lambda row: row[sort])
        placed = [{**row, **_storable(row), "part": name, "part_row": number} for number, row in enumerate(ordered)]
        # Built in memory: a ParquetWriter on a file leaves a valid file with rows missing when an exception passes it.
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_pylist(placed, schema=self._schema),
            sink,
            row_group_size=self._row_group,
            compression={field.name: "NONE" if field.type == pa.binary() else "ZSTD" for field in self._schema},
            write_page_checksum=True,
            write_page_index=self._sort is not None,
            sorting_columns=self._sorting_columns(),
            store_schema=False,
        )
        self._parts.publish(name, sink.getvalue().to_pybytes(), len(placed))

    def dataset(self) -> ds.Dataset:
        """The sound parts, to be scanned."""
        parts = self._parts.sound()
        if self._dataset is None or parts != self._dataset_parts:  # kept, since it holds every footer that it has read
            self._dataset = ds.dataset([str(part) for part in parts], schema=self._schema, format=_CHECKED)
            self._dataset_parts = parts
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
        return self._parts.recheck()

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Parts that the latest reading left out."""
        return self._parts.damage

    def _objection(self, part: Path) -> str | None:
        try:
            found = _CHECKED.inspect(str(part), _DISK)
        except UNREADABLE as error:
            return f"it is no Parquet file ({error})"
        return None if found.equals(self._schema) else "its columns are not those of this version's table"

    def _sorting_columns(self) -> list[pq.SortingColumn] | None:
        return [pq.SortingColumn(self._schema.get_field_index(self._sort))] if self._sort else None


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
