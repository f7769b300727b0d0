"""Tables leave the store as JSON, CSV and Parquet that other programs read."""

import csv
import io
import json
import math
import os
import subprocess
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store.make import trial
from tunefarm.model.errors import UsageError
from tunefarm.store import FORMATS, Store, write_table

TABLE = pa.table(
    {
        "n": pa.array([1, None], pa.int64()),
        "us": pa.array([1.5, math.inf]),
        "text": ['a "quoted", comma\nand line', "é"],
        "right": [True, None],
        "at": pa.array([datetime(2026, 1, 1, 12, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
        "day": [date(2026, 1, 1), None],
        "total": pa.array([Decimal(7), Decimal(8)], pa.decimal128(38, 0)),
        "raw": [b"\x00\xff", b""],
        "blocks": [[{"round": 0, "us": 1.5}], []],
    }
)


def text_of(table: pa.Table, form: str) -> str:
    stream = io.StringIO()
    write_table(table, form, stream)
    return stream.getvalue()


def test_json_is_one_array_of_objects() -> None:
    text = text_of(TABLE, "json")
    assert json.loads(text) == [
        {
            "n": 1,
            "us": 1.5,
            "text": 'a "quoted", comma\nand line',
            "right": True,
            "at": "2026-01-01T12:00:00Z",
            "day": "2026-01-01",
            "total": 7,
            "raw": "AP8=",
            "blocks": [{"round": 0, "us": 1.5}],
        },
        {
            "n": None,
            "us": None,
            "text": "é",
            "right": None,
            "at": None,
            "day": None,
            "total": 8,
            "raw": "",
            "blocks": [],
        },
    ]
    assert len(text.splitlines()) == 4  # a line each, between brackets


def test_csv_holds_nested_values_as_json() -> None:
    rows = list(csv.DictReader(io.StringIO(text_of(TABLE, "csv"), newline="")))
    assert rows == [
        {
            "n": "1",
            "us": "1.5",
            "text": 'a "quoted", comma\nand line',
            "right": "true",
            "at": "2026-01-01T12:00:00Z",
            "day": "2026-01-01",
            "total": "7",
            "raw": "AP8=",
            "blocks": '[{"round": 0, "us": 1.5}]',
        },
        {
            "n": "",
            "us": "inf",
            "text": "é",
            "right": "",
            "at": "",
            "day": "",
            "total": "8",
            "raw": "",
            "blocks": "[]",
        },
    ]


def test_a_table_without_rows_is_an_empty_array_and_a_header() -> None:
    assert text_of(TABLE.slice(0, 0), "json") == "[]\n"
    assert text_of(TABLE.slice(0, 0), "csv").splitlines() == [",".join(TABLE.column_names)]


def test_parquet_holds_the_same_table(tmp_path: Path) -> None:
    write_table(TABLE, "parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").equals(TABLE)


@pytest.mark.parametrize("form", FORMATS)
def test_every_trial_can_be_written_in_every_form(store: Store, tmp_path: Path, form: str) -> None:
    store.append_trials([trial(), trial(name="eng1")])
    write_table(store.sql("SELECT * FROM trials"), form, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out"]
    assert b"eng1" in (tmp_path / "out").read_bytes() or form == "parquet"


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_can_not_be_written_is_a_usage_error_and_leaves_nothing(tmp_path: Path, form: str) -> None:
    with pytest.raises(UsageError, match=r"can't write .*missing"):
        write_table(TABLE, form, tmp_path / "missing" / "out")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"can't write .*folder"):
        write_table(TABLE, form, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_can_not_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no format named 'xml'; there are json, csv, parquet"):
        text_of(TABLE, "xml")
    with pytest.raises(UsageError, match="name a file"):
        text_of(TABLE, "parquet")


@pytest.mark.parametrize("form", FORMATS)
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path, form: str) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_table(TABLE, form, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() != b"old"


@pytest.mark.parametrize("form", FORMATS)
def test_a_pipe_is_written_to_and_stays(tmp_path: Path, form: str) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    with copy.open("wb") as file, subprocess.Popen(["cat", str(pipe)], stdout=file) as reader:
        write_table(TABLE, form, pipe)
        assert reader.wait(30) == 0
    write_table(TABLE, form, tmp_path / "file")
    assert pipe.is_fifo()
    assert copy.read_bytes() == (tmp_path / "file").read_bytes()


def test_devices_are_written_to_and_stay() -> None:
    write_table(TABLE, "csv", Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*/missing; make it first"):
        write_table(TABLE, "csv", tmp_path / "missing" / "out.csv")


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", "\r", "b\r\n"])
def test_whatever_may_end_a_line_is_quoted_in_csv(text: str) -> None:
    written = text_of(pa.table({"text": [text], "n": [1]}), "csv")
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["text", "n"], [text, "1"]]
    assert written.endswith("1\n")


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1, 12, 0, 0, 120000, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
def test_moments_are_written_as_iso_8601_has_them(moment: datetime) -> None:
    (row,) = json.loads(text_of(pa.table({"at": pa.array([moment], pa.timestamp("us", tz="UTC"))}), "json"))
    assert row["at"] == moment.isoformat().replace("+00:00", "Z")
