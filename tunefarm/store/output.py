"""Tables out of the store: JSON, CSV and Parquet."""

import base64
import csv
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tunefarm.model.errors import UsageError

FORMATS = ("json", "csv", "parquet")


def write_table(table: pa.Table, form: str, destination: Path | TextIO) -> None:
    """Write a table out.

    Args:
        table: what a query gave.
        form: `json`, one array of objects, a line each, infinities and NaN as null; `csv`, nested values as JSON text,
            null as nothing; `parquet`, to a file only.
        destination: a file, which appears when it is whole; a pipe or device, which is written to; or an open text
            stream.

    Raises:
        UsageError: no such form, Parquet to a stream, or a file that can't be written.
    """
    if form not in FORMATS:
        raise UsageError(f"no format named {form!r}; there are {', '.join(FORMATS)}")
    if not isinstance(destination, Path):
        if form == "parquet":
            raise UsageError("Parquet is no text: name a file to write it to")
        _WRITERS[form](table, destination)
        return
    try:
        if not destination.parent.is_dir():
            raise UsageError(f"can't write {destination}: there is no folder {destination.parent}; make it first")
        if _takes_a_stream(destination):
            _write_file(table, form, destination)
            return
        with _draft_of(Path(os.path.realpath(destination))) as draft:  # a link stays, and what it leads to is replaced
            _write_file(table, form, draft)
    except OSError as error:
        raise UsageError(f"can't write {destination}: {error.strerror or error}") from error


def readable(table: pa.Table) -> pa.Table:
    """The table with dates and times as text: Python has none before year 1, after 9999, or of nanoseconds."""
    return pa.table([_without_time(column) for column in table.columns], names=table.column_names)


def _without_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = _textual(column.type)
    if kind == column.type:
        return column
    text = column.cast(kind)
    if kind != pa.string():
        return text
    for pattern, written in ((r"^([-\d]+) ", r"\1T"), (r"\.0+(\D|$)", r"\1"), (r"\+0000$", "Z")):
        text = pc.replace_substring_regex(text, pattern, written)
    return text


def _textual(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of dates and times, however deep."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_textual(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_textual(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_textual(kind.key_type), _textual(kind.item_type))
    return kind


def _takes_a_stream(destination: Path) -> bool:
    """Whether it is there to be written to, and no file to replace. `/dev/stdout` may lead to a file that grows."""
    if destination.is_relative_to("/proc") or destination.parent in {Path("/dev"), Path("/dev/fd")}:
        return True
    return destination.exists() and not destination.is_file()


def _write_file(table: pa.Table, form: str, path: Path) -> None:
    if form == "parquet":
        sink = pa.BufferOutputStream()  # a pipe can't be sought in
        pq.write_table(table, sink, compression="zstd")
        path.write_bytes(sink.getvalue())
        return
    with path.open("w", encoding="utf-8", newline="") as stream:
        _WRITERS[form](table, stream)


class _UnixLines:
    """Takes rows from a CSV writer, which quotes what may end a line only if rows end in it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> int:
        return self._stream.write(row.removesuffix("\r\n") + "\n")


@contextmanager
def _draft_of(destination: Path) -> Iterator[Path]:
    draft = destination.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        yield draft
        draft.replace(destination)
    finally:
        with suppress(OSError):
            draft.unlink()


def _write_json(table: pa.Table, stream: TextIO) -> None:
    separator = "[\n"
    for row in _rows(table):
        stream.write(separator + _json(row))
        separator = ",\n"
    stream.write("\n]\n" if table.num_rows else "[]\n")


def _write_csv(table: pa.Table, stream: TextIO) -> None:
    writer = csv.writer(_UnixLines(stream), lineterminator="\r\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow([_cell(value) for value in row.values()])


_WRITERS: Mapping[str, Callable[[pa.Table, TextIO], None]] = {"json": _write_json, "csv": _write_csv}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in readable(table).to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def _json(value: Any) -> str:
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return _json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, float) else _plain(value)


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one line a kind of value
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():  # what DuckDB's sums of integers are
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): _plain(v) for key, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return str(value)
