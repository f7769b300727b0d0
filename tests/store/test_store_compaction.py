"""Compaction, merging and retention: the same rows before, during and after, whoever is killed or runs beside."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Proposal
from tunefarm.model.trial import Standing
from tunefarm.store import Store, StoredProposal
from tunefarm.store.compaction import compact
from tunefarm.store.parts import Part, choose

NOW = timedelta()
VIEWS = ("all_trials", "trials", "winners", "all_proposals", "proposals", "plans", "targets")


def fill(store: Store, first: int = 0) -> None:
    """Six parts of trials with superseded rows, and some of each other table."""
    for number in range(first, first + 6):
        store.append_trials([trial(name=f"eng{row}", us=10.0 + number, minutes=number) for row in range(3)])
        store.append_plans([stored_plan(f"plan {number}".encode())])
        store.append_proposals([StoredProposal("p", TARGET.key, f"s{number % 2}", Proposal("cudnn"))])
    store.put_target(TARGET)


def content(path: Path) -> dict[str, list[dict[str, object]]]:
    """Everything that users see, read by a reader that has seen nothing before."""
    store = open_store(path)
    views = {view: store.select(view).to_pylist() for view in VIEWS}
    assert store.damage == ()
    return views


def files(path: Path, table: str = "trials") -> list[Path]:
    return sorted((path / table / "v1").iterdir())


@pytest.fixture
def path(store: Store, tmp_path: Path) -> Path:
    fill(store)
    return tmp_path / "store"


def test_compaction_changes_no_view_and_leaves_one_part(path: Path) -> None:
    before = content(path)
    reader = open_store(path)
    reader.sql("SELECT * FROM trials")
    done = open_store(path).compact()
    assert [(c.before, c.after, c.removed) for c in done] == [(6, 1, 0)] * 3
    assert content(path) == before
    assert len(files(path)) == 7
    assert [c.removed for c in open_store(path).compact(grace=NOW)] == [6] * 3
    assert content(path) == before
    assert len(files(path)) == 1
    assert reader.select("all_trials").to_pylist() == before["all_trials"]
    assert reader.plan(stored_plan(b"plan 3").plan.digest) == b"plan 3"
    assert [(c.before, c.after) for c in open_store(path).compact()] == [(1, 1)] * 3


def test_exactly_one_row_a_key_whatever_was_compacted_and_merged(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "copy")
    open_store(path).compact()
    fill(open_store(path), 6)
    other = open_store(tmp_path / "copy", create=True)
    other.merge(open_store(path))
    other.compact(grace=NOW)
    other.merge(open_store(path))
    open_store(path).merge(open_store(tmp_path / "copy"))
    for place in (path, tmp_path / "copy"):
        view = open_store(place).sql("SELECT trial_key, count(*) AS n, max(time_us) AS us FROM trials GROUP BY ALL")
        assert [(row["n"], row["us"]) for row in view.to_pylist()] == [(1, 21.0)] * 3
        assert open_store(place).sql("SELECT count(*) AS n FROM all_trials").to_pylist() == [{"n": 36}]


@pytest.mark.parametrize("step", range(1, 64, 7))
def test_a_compaction_that_dies_at_any_write_leaves_the_same_rows(
    path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    before = content(path)
    calls = 0
    real = {name: getattr(os, name) for name in ("fsync", "rename", "unlink", "mkdir")}

    def counted(name: str):
        def run(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == step:
                raise Killed
            return real[name](*args, **kwargs)

        return run

    with monkeypatch.context() as patch:
        for name in real:
            patch.setattr(os, name, counted(name))
        with suppress(Killed):
            open_store(path).compact(grace=NOW)
    assert content(path) == before
    open_store(path).compact(grace=NOW)
    assert content(path) == before
    assert len(files(path)) == 1


def test_compactions_side_by_side_leave_every_row_once(path: Path) -> None:
    """Each has seen other parts than the other, and both go on."""
    before = content(path)
    tables = [open_store(path)._trials.table for _ in range(3)]
    pieces = tables[0].parts.sound()
    tables[0].replace(pieces[:4])
    tables[1].replace(pieces[2:])
    tables[2].replace(pieces[1:3])
    assert content(path) == before
    for _ in range(2):
        open_store(path).compact(grace=NOW)
        assert content(path) == before
    assert len(files(path)) == 1


PARTS = st.lists(st.frozensets(st.sampled_from("abcdefg"), min_size=2), max_size=6)


@settings(max_examples=300, deadline=None)
@given(compacted=PARTS, generations=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_whatever_parts_replace_others_each_row_is_read_once(
    compacted: list[frozenset[str]], generations: list[int]
) -> None:
    parts = [Part(name, 0, "", 0) for name in "abcdefg"]
    parts += [
        Part(f"n{i}", 0, "", 0, replaces, generation)
        for i, (replaces, generation) in enumerate(zip(compacted, generations, strict=False))
    ]
    read = [name for part, without in choose(parts) for name in part.covers - without]
    assert sorted(read) == list("abcdefg")


def test_a_damaged_compacted_part_is_named_and_the_old_ones_serve(path: Path) -> None:
    before = content(path)
    open_store(path).compact()
    (new,) = {part for part in files(path) if part.stat().st_size == max(p.stat().st_size for p in files(path))}
    new.write_bytes(b"PAR1")
    store = open_store(path)
    assert store.select("all_trials").to_pylist() == before["all_trials"]
    assert [damage.path for damage in store.damage] == [str(new)]


def test_merging_twice_is_merging_once(path: Path, tmp_path: Path) -> None:
    into = open_store(tmp_path / "into", create=True)
    assert into.merge(open_store(path)) == {"trials": 18, "proposals": 6, "plans": 6}
    assert content(tmp_path / "into") == content(path)
    assert set(into.merge(open_store(path)).values()) == {0}
    open_store(path).compact(grace=NOW)
    assert set(into.merge(open_store(path)).values()) == {0}
    assert content(tmp_path / "into") == content(path)


def test_prune_drops_what_is_superseded_and_never_a_winner(path: Path) -> None:
    store = open_store(path)
    store.append_trials(
        [
            replace(
                trial(name="loser", standing=Standing.SLOWER, minutes=9), plan_digest=stored_plan(b"plan 1").plan.digest
            ),
            trial(name="best", minutes=9),
        ]
    )
    current = store.select("trials").to_pylist()
    winners = store.select("winners").to_pylist()
    later = NOON + timedelta(days=9999)
    counted = store.prune(later, dry_run=True)
    assert (counted.superseded, counted.blocks, counted.plans) == (15, 1, 5)
    assert len(store.sql("SELECT * FROM all_trials")) == 20
    assert store.prune(NOON, dry_run=True).superseded == 0
    assert store.prune(later, grace=NOW) == counted
    after = open_store(path)
    assert after.select("winners").to_pylist() == winners
    assert after.select("all_trials").to_pylist() == [
        {**row, "blocks": [] if row["candidate_name"] == "loser" else row["blocks"]} for row in current
    ]
    assert [row["digest"] for row in after.select("plans").to_pylist()] == [stored_plan(b"plan 1").plan.digest]
    assert len(after.trials()) == 5
    assert after.prune(later) == type(counted)(0, 0, 0)
    after.compact(grace=NOW)
    assert len(open_store(path).trials()) == 5


def test_check_names_every_damaged_file_and_sets_it_aside(path: Path) -> None:
    open_store(path).compact()
    (path / "meta" / "targets" / f"{TARGET.key}.json").write_text("{}")
    replaced, plans = files(path)[0], files(path, "plans")[0]
    for part in (replaced, plans):
        part.write_bytes(part.read_bytes()[:-1])
    store = open_store(path)
    store.sql("SELECT * FROM trials")
    assert str(replaced) not in {damage.path for damage in store.damage}  # it is read no more
    damage = store.check()
    assert {Path(d.path).name for d in damage} == {replaced.name, plans.name, f"{TARGET.key}.json"}
    assert len(store.check(set_aside=True)) == 3
    assert store.check() == ()
    assert (path / "damaged" / "trials" / "v1" / replaced.name).is_file()
    assert open_store(path, create=True).check() == ()


def test_a_large_part_is_left_as_it_is(path: Path) -> None:
    table = open_store(path)._trials.table
    size = max(part.stat().st_size for part in files(path))
    assert compact(table, part_bytes=size).after == 6
    assert compact(table, part_bytes=3 * size).after < 6
    assert isinstance(table.dataset().to_table(), pa.Table)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_of_writing_compacting_and_pruning_keeps_the_current_rows(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    expected: dict[str, float] = {}
    for minute in range(8):
        store = open_store(path, create=True)
        match data.draw(st.sampled_from(["write", "write", "compact", "prune"])):
            case "write":
                name = data.draw(st.sampled_from(["a", "b"]))
                store.append_trials([trial(name=name, us=float(minute + 2), minutes=minute)])
                expected[name] = minute + 2
            case "compact":
                store.compact(grace=NOW)
            case _:
                store.prune(NOON + timedelta(days=9), grace=NOW)
        rows = open_store(path).select("trials", columns=["candidate_name", "time_us"]).to_pylist()
        assert {row["candidate_name"]: row["time_us"] for row in rows} == expected
        assert len(rows) == len(expected)
