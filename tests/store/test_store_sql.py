"""Queries see the current view, and nothing outside the store."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.store.make import TARGET, failed, stored_plan, trial
from tests.strategies import Toy, toy_from_dict
from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import UsageError
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Standing, Status
from tunefarm.store import VIEWS, Store, StoredProposal, sql
from tunefarm.store.rows import trial_row

SECRET = "do not read me"


def test_a_later_trial_supersedes_whoever_wrote_first(store: Store) -> None:
    store.append_trials([trial(us=8.0, minutes=2)])
    store.append_trials([trial(us=9.0, minutes=1)])
    assert store.select("trials", columns=["time_us"]).to_pylist() == [{"time_us": 8.0}]
    assert store.select("all_trials", columns=["time_us"]).to_pylist() == [{"time_us": 8.0}, {"time_us": 9.0}]
    assert [t.outcome.measurement and t.outcome.measurement.time_us for t in store.trials()] == [8.0]


def test_of_trials_finished_at_once_the_one_written_last_counts(store: Store) -> None:
    store.append_trials([trial(us=8.0), trial(us=9.0)])
    store.append_trials([trial(us=7.0)])
    assert store.select("trials", columns=["time_us"]).to_pylist() == [{"time_us": 7.0}]
    assert store.trials() == [trial(us=7.0)]


def test_a_failure_supersedes_a_win(store: Store) -> None:
    store.append_trials([trial(name="eng0")])
    store.append_trials([failed(name="eng0", minutes=1)])
    assert len(store.select("winners")) == 0
    assert store.select("trials", columns=["status"]).to_pylist() == [{"status": "crashed"}]


def test_every_status_is_finished(store: Store) -> None:
    trials = [failed(name=status.value, status=status) for status in Status]
    store.append_trials([*trials, trial(target="elsewhere")])
    assert store.finished(TARGET.key) == {t.key for t in trials}


def test_there_is_one_winner_a_problem_target_and_protocol(store: Store) -> None:
    hot = Protocol(cache=Cache.HOT)
    store.append_trials(
        [
            trial(name="old"),
            trial(name="new", minutes=1),
            trial(name="tied", minutes=2, standing=Standing.TIED),
            trial(name="hot", protocol=hot),
            trial(name="other", n=2048),
            trial(name="there", target="elsewhere"),
        ]
    )
    winners = store.select("winners", columns=["candidate_name"], order=["candidate_name"])
    assert winners.column(0).to_pylist() == ["hot", "new", "other", "there"]


def test_trials_can_be_asked_for_by_problem_target_and_protocol(store: Store) -> None:
    hot = Protocol(cache=Cache.HOT)
    every = [trial(), trial(n=2048), trial(target="elsewhere"), trial(protocol=hot)]
    store.append_trials(every)
    assert store.trials(problems=[Toy(2048).key]) == [every[1]]
    assert store.trials(target="elsewhere") == [every[2]]
    assert store.trials(protocols={hot.key}) == [every[3]]
    assert store.trials(problems={Toy(1024).key}, target=TARGET.key, protocols={Protocol().key}) == [every[0]]
    assert store.trials(problems=[]) == []


def test_trials_come_oldest_first(store: Store) -> None:
    store.append_trials([trial(name="b", minutes=1)])
    store.append_trials([trial(name="a")])
    assert [t.outcome.candidate.name for t in store.trials()] == ["a", "b"]


def test_rows_in_another_versions_words_are_no_current_trials(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Gone(Toy):
        op = "gone"

    def with_a_new_field(op: str, payload: Mapping[str, Any]) -> Problem:
        return toy_from_dict(op, {**payload, "scale": 2.0})

    store.append_trials([trial(name="old", problem=Gone(1024)), trial(name="new")])
    assert [t.outcome.candidate.name for t in store.trials()] == ["new"]
    assert "1 of 2 stored trials" in caplog.text
    store._trials.table.append([{**trial_row(trial(name="newer")), "status": "vanished"}])
    assert [t.outcome.candidate.name for t in store.trials()] == ["new"]
    assert Store.open(tmp_path / "store", problem_from_dict=with_a_new_field).trials() == []
    assert store.damage == ()
    assert len(store.select("trials")) == 3


def test_an_empty_store_has_every_view_with_its_columns(store: Store) -> None:
    for view, schema in VIEWS.items():
        result = store.sql(f"SELECT * FROM {view}")
        assert (view, result.column_names, len(result)) == (view, schema.names, 0)
        assert store.select(view, limit=3).column_names == schema.names
        assert [str(kind) for kind in result.schema.types if "list" not in str(kind)] == [
            str(kind) for kind in schema.types if "list" not in str(kind)
        ]
    assert store.trials() == []
    assert store.proposals(TARGET.key) == {}
    assert store.targets() == {}


def test_views_join(store: Store) -> None:
    store.append_trials([trial()])
    store.append_plans([stored_plan(b"plan")])
    store.append_proposals([StoredProposal(Toy(1024).key, TARGET.key, "s", Proposal("cudnn"))])
    store.put_target(TARGET)
    query = """
        SELECT t.candidate_name, g.device, p.raw_bytes, q.engine
        FROM winners t JOIN targets g USING (target) JOIN plans p ON p.candidate = t.candidate
            JOIN proposals q ON q.problem = t.problem
        WHERE t.time_us < 100 AND t.finished_at > TIMESTAMPTZ '2026-01-01 11:00:00+00' AND t.engine IN ('cudnn', 'x')
    """
    expected = {"candidate_name": "eng0", "device": "NVIDIA H200", "raw_bytes": 4, "engine": "cudnn"}
    assert store.sql(query).to_pylist() == [expected]


def test_blocks_can_be_unnested(store: Store) -> None:
    store.append_trials([trial(us=8.0), trial(name="eng1", us=9.0)])
    query = "SELECT max(b.us) AS us FROM (SELECT unnest(blocks) AS b FROM trials)"
    assert store.sql(query).to_pylist() == [{"us": 9.0}]


@pytest.mark.parametrize(
    "where",
    [
        "time_us > 12.5",
        "time_us BETWEEN 11 AND 14 OR candidate_name = 'eng3'",
        "candidate_name IN ('eng1', 'eng4', 'none')",
        "candidate_name LIKE 'eng1%' AND standing IS NOT NULL",
        "standing IS NULL",
        "status <> 'measured'",
        "is_default = false AND rank = 0 AND time_us < 15",
        "engine_id IS NULL AND finished_at >= TIMESTAMPTZ '2026-01-01 12:03:00+00'",
        "is_right AND len(blocks) = 1",
        "tflops < 0.0001 AND workspace_bytes IS NULL",
    ],
)
def test_conditions_mean_the_same_over_parts_as_over_rows_in_memory(store: Store, where: str) -> None:
    """DuckDB hands conditions down to pyarrow, which reads the parts; nobody else checks that both mean the same."""
    store.append_trials([trial(name=f"eng{i}", us=10.0 + i, minutes=i) for i in range(8)])
    store.append_trials([failed(name=f"bad{i}", minutes=i) for i in range(4)])
    pushed = store.sql(f"SELECT candidate_name FROM all_trials WHERE {where} ORDER BY 1")
    with duckdb.connect() as db:
        db.register("parts", store.select("all_trials"))
        db.execute("CREATE TABLE held AS SELECT * FROM parts")
        held = db.sql(f"SELECT candidate_name FROM held WHERE {where} ORDER BY 1").to_arrow_table()
    assert pushed.equals(held)
    assert 0 < len(pushed) < 12


FILE_ATTACKS = [
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{part}')",
    "SELECT * FROM parquet_metadata('{part}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM read_duckdb('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM '{part}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM query('FROM read_text(''{secret}'')')",
    "SELECT * FROM query_table('{secret}')",
    "SELECT * FROM 'https://localhost/x.parquet'",
    "SELECT getenv('HOME')",
    "SELECT system('id')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM enable_logging('QueryLog', storage='file', storage_path='{folder}/log')",
    "SELECT * FROM enable_profiling(save_location='{folder}/profile')",
    "SELECT * FROM secret_variable",
    "COPY trials TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.parquet'",
    "COPY trials FROM '{secret}'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{folder}/out.db'",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{secret}'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE SECRET s (TYPE s3)",
    "DROP VIEW trials",
    "INSERT INTO trials SELECT * FROM trials",
    "EXPLAIN ANALYZE COPY trials TO '{folder}/out.csv'",
    "CALL pragma_version()",
    "VACUUM",
    "SELECT 1; COPY trials TO '{folder}/out.csv'",
    "WITH a AS (SELECT 1) SELECT * FROM a; SET threads = 1",
    "SELECT * FROM query('SELECT 1; COPY trials TO ''{folder}/out.csv''')",
    "",
    ";",
    "-- nothing",
    ".shell id",
]


@pytest.mark.parametrize("attack", FILE_ATTACKS)
def test_a_query_can_not_leave_the_store(store: Store, tmp_path: Path, attack: str) -> None:
    secret_variable = store.sql("SELECT 1 AS x")  # noqa: F841 - bait: DuckDB can read its caller's variables
    store.append_trials([trial()])
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    part = next((tmp_path / "store" / "trials" / "v1").iterdir())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError) as raised:
        store.sql(attack.format(secret=folder / "secret.txt", part=part, folder=folder))
    assert SECRET not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert store.sql("SELECT count(*) AS n FROM trials").to_pylist() == [{"n": 1}]


def test_a_query_leaves_no_file_where_it_ran(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    store.sql("SELECT * FROM range(100000) ORDER BY hash(range)")
    assert os.listdir(place) == []  # noqa: PTH208 - hidden ones too


def test_a_query_that_needs_too_much_memory_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sql._LOCKED, "memory_limit", "20MB")
    with pytest.raises(UsageError, match=r"(?i)memory"):
        store.sql("SELECT * FROM range(20000000) AS r(a) ORDER BY hash(a)")


def test_a_mistake_in_a_query_is_explained_with_what_there_is(store: Store) -> None:
    with pytest.raises(UsageError) as raised:
        store.sql("SELECT tme_us FROM trials")
    text = str(raised.value)
    assert "time_us" in text
    assert text.startswith("Binder Error")
    assert text.endswith(
        "The views are trials, winners, all_trials, proposals, all_proposals, plans, targets; "
        "`DESCRIBE trials` tells the columns of one."
    )
    assert "trial_key" not in text
    assert "time_us" in store.sql("DESCRIBE trials").column("column_name").to_pylist()
    assert raised.value.exit_code == 2
    with pytest.raises(UsageError, match=r"(?s)trails.*[Dd]id you mean.*trials"):
        store.sql("SELECT * FROM trails")
    with pytest.raises(UsageError, match="syntax error"):
        store.sql("SELEC 1")


def test_two_columns_of_one_name_are_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="more than one column named a; name them apart"):
        store.sql("SELECT 1 AS a, 2 AS a")


def test_times_are_utc_whatever_the_machine_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    store.append_trials([trial()])
    result = store.sql("SELECT finished_at, finished_at::VARCHAR AS text FROM trials")
    assert str(result.schema.field("finished_at").type) == "timestamp[us, tz=UTC]"
    assert result.column("text").to_pylist() == ["2026-01-01 12:00:00+00"]
