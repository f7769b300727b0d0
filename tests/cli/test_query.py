import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.report.make import cudnn, trial
from tunefarm.store import VIEWS, Store


def rows(result):
    return json.loads(result.out)


def test_a_table_shows_the_columns_that_one_wants_at_a_glance(cli, store_path):
    result = cli("query", "--store", store_path)
    assert (result.code, result.err) == (0, "")
    header, *lines = result.out.splitlines()
    assert header.split()[:4] == ["name", "engine", "candidate_name", "status"]
    assert len(lines) == 11


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 11),
        (["--engine", "torch"], 4),
        (["--status", "crashed"], 1),
        (["--standing", "won"], 2),
        (["--name", "huge"], 2),
        (["--job", "test"], 11),
        (["--job", "test", "--op", "conv"], 0),
        (["--op", "matmul"], 11),
        (["--op", "conv"], 0),
        (["--problem", "huge"], 2),
        (["--winners"], 2),
        (["--winners", "--engine", "torch"], 1),
        (["--limit", "3"], 3),
        (["--limit", "0"], 0),
    ],
)
def test_filters_narrow_what_is_seen(options, count, cli, store_path):
    assert len(rows(cli("query", "--store", store_path, "--format", "json", *options))) == count


def test_superseded_rows_are_seen_only_when_all_are_asked_for(cli, store_path):
    again = trial(cudnn("eng4_k24=3"), 18.0, n=8, name="llama-3-8b.mlp.up", minute=9)
    Store.open(store_path).append_trials([again])
    query = ("query", "--store", store_path, "--format", "json")
    assert len(rows(cli(*query))) == 11
    assert len(rows(cli(*query, "--all"))) == 12


def test_columns_and_order_are_as_asked(cli, store_path):
    result = cli(
        *("query", "--store", store_path, "--format", "csv", "--columns", "candidate_name, time_us"),
        *("--status", "measured", "--sort", "-time_us", "--limit", "2"),
    )
    assert list(csv.reader(io.StringIO(result.out))) == [
        ["candidate_name", "time_us"],
        ["eng32_k2=2_k6=0_k13=2_k14=0_k22=2", "263.1"],
        ["eng4", "39.3"],
    ]


def test_formats_for_programs_have_every_column(cli, store_path):
    (first, *_) = rows(cli("query", "--store", store_path, "--format", "json"))
    assert list(first) == VIEWS["trials"].names


def test_parquet_goes_to_a_file(cli, store_path, tmp_path):
    path = tmp_path / "out.parquet"
    result = cli("query", "--store", store_path, "--format", "parquet", "--output", path)
    assert (result.code, result.out) == (0, "")
    assert pq.read_table(path).num_rows == 11


def test_sql_reads_every_view(cli, store_path):
    for view in VIEWS:
        result = cli("query", "--store", store_path, "--format", "json", "--sql", f"SELECT count(*) AS n FROM {view}")
        assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sql", "SELECT 1", "--limit", "3"], "--sql takes the place of --limit"),
        (["--sql", "SELECT 1", "--winners"], "--sql takes the place of --winners or --all"),
        (["--format", "parquet"], "give --output FILE"),
        (["--output", "x.txt"], "a table is for people"),
        (["--op", "fft"], "no operation named 'fft'; there are conv, matmul, sdpa"),
        (["--columns", "tme_us"], "did you mean time_us?"),
        (["--problem", "nosuch"], "'nosuch'"),
        (["--sql", "DELETE FROM trials"], "only one SELECT"),
        (["--status", "fine"], "Invalid value for '--status'"),
    ],
)
def test_what_can_not_be_asked_is_refused_with_a_reason(options, message, cli, store_path):
    result = cli("query", "--store", store_path, *options)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "hugh"], "the store has no name 'hugh'; did you mean huge?"),
        (["--job", "tset"], "the store has no job 'tset'; did you mean test?"),
        (["--columns", "tme_us,foo"], "did you mean time_us"),
        (["--columns", "tme_us,nmae"], "trials has no column 'nmae'; did you mean name?"),
        (["--sort", "-tme_us"], "did you mean time_us"),
    ],
)
def test_a_misspelt_name_is_told_with_what_was_meant(options, message, cli, store_path):
    result = cli("query", "--store", store_path, *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_files_name_tells_its_format(suffix, cli, store_path, tmp_path):
    path = tmp_path / f"out.{suffix}"
    assert cli("query", "--store", store_path, "--output", path).code == 0
    content = path.read_bytes()
    assert content.startswith({"csv": b"trial_key,", "json": b"[\n{", "parquet": b"PAR1"}[suffix])


def test_winners_at_a_glance_are_told_apart_by_their_problems(cli, store_path):
    header, *_ = cli("query", "--store", store_path, "--winners").out.splitlines()
    assert header.split()[:4] == ["name", "label", "engine", "candidate_name"]
    assert not {"status", "standing"} & set(header.split())


def test_a_narrow_output_has_a_line_a_value_and_breaks_none(cli, store_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = cli("query", "--store", store_path, "--winners").out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "name: llama-3-8b.mlp.up" in lines
    assert "time_us: 18.8" in lines


ODD_TIMES = (
    "SELECT TIMESTAMP '290000-01-01' AS far, DATE '-infinity' AS never, "
    "make_timestamp_ns(1700000000123456789) AS fine, "
    "[TIMESTAMP '20000-01-01'] AS many, {'x': DATE '12000-01-01'} AS one, "
    "TIME '01:02:03' AS noon, INTERVAL 3 DAY AS long"
)


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_times_that_python_has_not_are_printed(form, cli, store_path):
    result = cli("query", "--store", store_path, "--format", form, "--sql", ODD_TIMES)
    assert (result.code, result.err) == (0, "")
    assert "2023-11-14T22:13:20.123456789" in result.out
    assert "12000-01-01" in result.out


def test_no_rows_is_said(cli, store_path):
    result = cli("query", "--store", store_path, "--op", "conv")
    assert (result.code, result.err) == (0, "no rows\n")


def test_a_folder_that_is_no_store_exits_with_4(cli, tmp_path):
    result = cli("query", "--store", tmp_path / "nothing")
    assert result.code == 4
    assert "is no tunefarm store" in result.err
    assert not (tmp_path / "nothing").exists()


def test_the_store_may_be_named_by_the_environment(cli, store_path, monkeypatch):
    monkeypatch.setenv("TUNEFARM_STORE", str(store_path))
    assert cli("query", "--winners").code == 0


@pytest.mark.parametrize("command", [["query", "--problem", "lost"], ["show", "lost"], ["query", "--name", "lost"]])
def test_a_problem_that_only_a_damaged_part_held_is_a_damaged_store(command, cli, store_path):
    Store.open(store_path).append_trials([trial(cudnn("later"), 5.0, n=512, name="lost", minute=9)])
    newest = max(Path(store_path, "trials").rglob("*.parquet"), key=lambda path: path.name)
    newest.write_bytes(b"\0" * 100)
    result = cli(*command, "--store", store_path)
    assert result.code == 4
    assert "'lost'" in result.err
    assert "warning: left out of the store:" in result.err


@pytest.mark.parametrize("command", [["query"], ["show", "huge"]])
def test_a_damaged_part_is_told_and_the_rest_printed(command, cli, store_path):
    Store.open(store_path).append_trials([trial(cudnn("later"), 5.0, n=512, minute=9)])
    newest = max(Path(store_path, "trials").rglob("*.parquet"), key=lambda path: path.name)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    result = cli(*command, "--store", store_path)
    assert result.code == 4
    assert result.err.startswith("warning: left out of the store:")
    assert f"run the sweep again to re-measure what it held, then delete {newest}" in result.err
    assert "huge" in result.out
