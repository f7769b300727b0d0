"""Many processes write at once, some die at it, and nothing is lost, broken or seen twice."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from tests.store import writers
from tests.store.make import TARGET, open_store, stored_plan, trial
from tunefarm.model.errors import StoreError
from tunefarm.store import Store

Start = Callable[..., ForkServerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a job in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.writers"])
    started: list[ForkServerProcess] = []

    def run(job: Callable[..., Any], *args: Any) -> ForkServerProcess:
        process = context.Process(target=job, args=args)
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()


def parts(path: Path, table: str = "trials") -> list[Path]:
    return sorted((path / table / "v1").glob("*"))


def test_sixteen_writers_lose_no_row_while_one_of_them_is_killed(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "store"  # made by whichever writer comes first
    doomed = start(writers.append_for_ever, path, 15)
    honest = [start(writers.append_batches, path, writer, 4, 5) for writer in range(15)]
    while not parts(path):
        time.sleep(0.01)
    doomed.kill()
    for process in honest:
        process.join()
    assert [process.exitcode for process in honest] == [0] * 15

    store = open_store(path)
    names = [t.outcome.candidate.name for t in store.trials()]
    assert len(names) == len(set(names))
    expected = {f"eng{writer}_{batch}_{row}" for writer in range(15) for batch in range(4) for row in range(5)}
    assert {name for name in names if name.startswith("eng")} == expected
    survivors = [name for name in names if not name.startswith("eng")]
    assert len(survivors) % 50 == 0  # of the killed one: whole parts only
    for writer in range(15):
        for batch in range(4):
            blob = f"plan {writer} {batch}".encode()
            assert store.plan(stored_plan(blob).plan.digest) == blob
    assert store.damage == ()


def test_any_tool_reads_what_writers_left(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "store"
    jobs = [start(writers.append_batches, path, writer, 2, 5) for writer in range(4)]
    for process in jobs:
        process.join()
    folder = path / "trials" / "v1"
    assert ds.dataset(folder, format="parquet").count_rows() == 40
    query = (
        f"SELECT count(*), count(DISTINCT trial_key), max(finished_at)::VARCHAR, max(time_us) FROM '{folder}/*.parquet'"
    )
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        rows = db.execute(query).fetchall()
    assert rows == [(40, 40, "2026-01-01 12:01:00+00", 10.0)]


def test_rows_of_equal_keys_from_many_writers_are_one_current_row_each(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "store"
    jobs = [start(writers.append_same, path, writer, 3) for writer in range(6)]
    for process in jobs:
        process.join()
    store = open_store(path)
    assert sorted(t.outcome.candidate.name for t in store.trials()) == [f"eng{row}" for row in range(5)]
    counts = "SELECT (SELECT count(*) FROM trials) AS current, (SELECT count(*) FROM all_trials) AS every"
    assert store.sql(counts).to_pylist() == [{"current": 5, "every": 90}]
    # Ties of time are settled the same way by whoever reads.
    by_sql = {r["candidate_name"]: r["time_us"] for r in store.select("trials").to_pylist()}
    by_python = {t.outcome.candidate.name: t.outcome.measurement for t in store.trials()}
    assert {name: m and m.time_us for name, m in by_python.items()} == by_sql


def test_a_writer_killed_at_any_step_leaves_all_of_its_part_or_nothing(
    store: Store, tmp_path: Path, start: Start
) -> None:
    path = tmp_path / "store"
    store.append_trials([trial(name="early")])
    outcomes = []
    for step in range(1, 100):
        process = start(writers.append_and_die_at, path, step)
        process.join()
        reader = open_store(path)
        names = {t.outcome.candidate.name for t in reader.trials()}
        assert names in ({"early"}, {"early", "late0", "late1", "late2"})
        assert reader.damage == ()
        assert all(part.suffix == ".parquet" for part in parts(path))
        outcomes.append((process.exitcode, len(parts(path))))
        if process.exitcode == 0:
            break
    codes = [code for code, _ in outcomes]
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert len(codes) > 10  # the steps were really met: two files, each opened, synced, renamed, its folder synced
    # A writer that died after the rename has published; one that returned certainly has.
    assert 1 < outcomes[-1][1] <= len(codes)


@pytest.mark.parametrize("limit", [0, 10, 2000])
def test_a_writer_killed_amid_a_write_leaves_nothing(store: Store, tmp_path: Path, start: Start, limit: int) -> None:
    path = tmp_path / "store"
    store.append_trials([trial(name="early")])
    process = start(writers.append_and_die_writing, path, limit)
    process.join()
    assert process.exitcode == -signal.SIGXFSZ
    reader = open_store(path)
    assert [t.outcome.candidate.name for t in reader.trials()] == ["early"]
    assert reader.damage == ()
    reader.append_trials([trial(name="next")])  # and is in nobody's way
    assert len(reader.trials()) == 2


@pytest.mark.parametrize("limit", [0, 10, 2000])
def test_a_full_disk_is_a_store_error_and_publishes_nothing(
    store: Store, tmp_path: Path, start: Start, limit: int
) -> None:
    path = tmp_path / "store"
    store.append_trials([trial(name="early")])
    process = start(writers.append_on_a_full_disk, path, limit)
    process.join()
    assert process.exitcode == 7
    assert [t.outcome.candidate.name for t in open_store(path).trials()] == ["early"]
    assert list((path / "tmp").iterdir()) == []
    assert len(parts(path)) == 1


def test_what_is_renamed_is_synced_before_and_its_folder_after(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test can cut the power: this order is what a power loss needs to leave no broken part and lose no old one."""
    events: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def name(path: str | Path) -> str:
        place = Path(path).resolve().relative_to(tmp_path / "store")
        return "tmp/draft" if place.parent.name == "tmp" else str(place.with_name("part") if place.suffix else place)

    def record_sync(handle: int) -> None:
        events.append(("sync", name(f"/proc/self/fd/{handle}")))
        sync(handle)

    def record_rename(source: Path, target: Path) -> None:
        events.append(("rename", name(target)))
        rename(source, target)

    store.append_trials([trial()])  # the folders are made
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    store.append_trials([trial()])
    assert events == [
        ("sync", "tmp/draft"),
        ("rename", "meta/trials/v1/part"),
        ("sync", "meta/trials/v1"),
        ("sync", "tmp/draft"),
        ("rename", "trials/v1/part"),
        ("sync", "trials/v1"),
    ]


def test_a_batch_that_can_not_be_built_publishes_nothing(store: Store, tmp_path: Path) -> None:
    too_large = trial(name="eng1", workspace_bytes=2**63)
    with pytest.raises(OverflowError):
        store.append_trials([trial(name="eng0"), too_large])
    assert store.trials() == []
    assert not (tmp_path / "store" / "trials").exists()


def test_readers_see_what_others_append_while_they_are_open(tmp_path: Path, store: Store) -> None:
    reader = open_store(tmp_path / "store")
    assert reader.finished(TARGET.key) == set()
    store.append_trials([trial()])
    assert reader.finished(TARGET.key) == {trial().key}
    assert reader.sql("SELECT count(*) AS n FROM trials").to_pylist() == [{"n": 1}]


def test_an_interrupt_ends_a_long_query(store: Store, tmp_path: Path, start: Start) -> None:
    process = start(writers.query_until_interrupted, tmp_path / "store")
    process.join(60)
    assert process.exitcode == 130


def test_nothing_is_published_for_no_rows(store: Store, tmp_path: Path) -> None:
    store.append_trials([])
    store.append_plans([])
    store.append_proposals([])
    assert not (tmp_path / "store" / "trials").exists()


def test_a_store_that_can_not_be_written_says_so(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "trials").write_text("in the way")
    with pytest.raises(StoreError, match=r"can't write .*trials"):
        store.append_trials([trial()])
