"""Tables out of the store: JSON, CSV and Parquet."""

import base64
import csv
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from tunefarm.model.errors import UsageError

FORMATS = ("json", "csv", "parquet")


def write_table(table: pa.Table, form: str, destination: Path | TextIO) -> None:
    """Write a table out.

    Args:
        table: what a query gave.
        form: `json`, one array of objects, a line each, infinities and NaN as null; `csv`, nested values as JSON text,
            null as nothing; `parquet`, to a file only.
        destination: a file, which appears when it is whole; or an open text stream.

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
        with _draft_of(destination) as draft:
            if form == "parquet":
                pq.write_table(table, draft, compression="zstd")
            else:
                with draft.open("w", encoding="utf-8", newline="") as stream:
                    _WRITERS[form](table, stream)
    except OSError as error:
        raise UsageError(f"can't write {destination}: {error.strerror or error}") from error


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
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow([_cell(value) for value in row.values()])


_WRITERS: Mapping[str, Callable[[pa.Table, TextIO], None]] = {"json": _write_json, "csv": _write_csv}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=1000):
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
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): _plain(v) for key, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return str(value)
