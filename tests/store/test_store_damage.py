"""A damaged file is named and left out, and what is sound is all there."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.make import TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import StoreError
from tunefarm.store import Store, StoredProposal

Damager = Callable[[Path], object]


def flip(part: Path, position: int) -> None:
    data = bytearray(part.read_bytes())
    data[position % len(data)] ^= 1 << (position % 8)
    part.write_bytes(data)


def forge(part: Path) -> None:
    """A sound Parquet file in the part's place, one that no writer published."""
    pq.write_table(pa.table({"key": ["x"]}), part)


def lose_proof(part: Path) -> None:
    proof_of(part).unlink()


def proof_of(part: Path) -> Path:
    return part.parents[2] / "meta" / "trials" / "v1" / f"{part.stem}.json"


DAMAGERS: dict[str, tuple[Damager, str]] = {
    "a flipped bit amid the data": (lambda part: flip(part, 100), "SHA-256"),
    "a flipped bit in the footer": (lambda part: flip(part, part.stat().st_size - 20), "SHA-256"),
    "cut short": (lambda part: part.write_bytes(part.read_bytes()[:-1]), "bytes"),
    "0 bytes": (lambda part: part.write_bytes(b""), "0 bytes"),
    "something appended": (lambda part: part.write_bytes(part.read_bytes() + b"PAR1"), "bytes"),
    "another file in its place": (forge, "bytes"),
    "no proof": (lose_proof, "unproven"),
    "a proof that is no JSON": (lambda part: proof_of(part).write_bytes(b"\xff\x00"), "unproven"),
    "a proof of something else": (lambda part: proof_of(part).write_text("[1]"), "unproven"),
}


@pytest.fixture
def three_parts(store: Store, tmp_path: Path) -> list[Path]:
    for name in ("eng0", "eng1", "eng2"):
        store.append_trials([trial(name=name)])
    return sorted((tmp_path / "store" / "trials" / "v1").iterdir())


def names(store: Store) -> list[str]:
    return [t.outcome.candidate.name for t in store.trials()]


@pytest.mark.parametrize("kind", DAMAGERS)
def test_a_damaged_part_is_named_and_the_rest_is_right(three_parts: list[Path], tmp_path: Path, kind: str) -> None:
    damage, what = DAMAGERS[kind]
    damage(three_parts[1])
    store = open_store(tmp_path / "store")
    assert names(store) == ["eng0", "eng2"]
    assert [d.path for d in store.damage] == [str(three_parts[1])]
    assert what in store.damage[0].what
    assert len(store.finished(TARGET.key)) == 2
    assert store.sql("SELECT candidate_name AS n FROM trials ORDER BY n").column("n").to_pylist() == ["eng0", "eng2"]
    assert str(store.damage[0]).startswith(f"{three_parts[1]}: ")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10**6))
def test_no_flipped_bit_changes_what_is_read(three_parts: list[Path], tmp_path: Path, position: int) -> None:
    whole = three_parts[0].read_bytes()
    try:
        flip(three_parts[0], position)
        store = open_store(tmp_path / "store")
        assert names(store) == ["eng1", "eng2"]
        assert len(store.damage) == 1
    finally:
        three_parts[0].write_bytes(whole)


def test_a_parquet_file_of_other_columns_is_set_aside_even_if_proven(three_parts: list[Path], tmp_path: Path) -> None:
    forge(three_parts[1])
    data = three_parts[1].read_bytes()
    proof_of(three_parts[1]).write_text(json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}))
    store = open_store(tmp_path / "store")
    assert names(store) == ["eng0", "eng2"]
    assert "columns" in store.damage[0].what


def test_files_that_are_no_parts_are_ignored(three_parts: list[Path], tmp_path: Path) -> None:
    folder = three_parts[0].parent
    (folder / "notes.txt").write_text("mine")
    (folder / "part.parquet.tmp").write_bytes(b"half")
    (folder / "folder").mkdir()
    store = open_store(tmp_path / "store")
    assert names(store) == ["eng0", "eng1", "eng2"]
    assert store.damage == ()


def test_a_proof_without_a_part_is_harmless(three_parts: list[Path], tmp_path: Path) -> None:
    three_parts[1].unlink()
    store = open_store(tmp_path / "store")
    assert names(store) == ["eng0", "eng2"]
    assert store.damage == ()


def test_damage_that_comes_while_the_store_is_open_is_found_when_it_is_met(
    three_parts: list[Path], store: Store
) -> None:
    assert names(store) == ["eng0", "eng1", "eng2"]
    three_parts[1].write_bytes(b"PAR1")
    assert names(store) == ["eng0", "eng2"]
    assert len(store.damage) == 1
    three_parts[2].unlink()
    assert store.sql("SELECT candidate_name AS n FROM trials").to_pylist() == [{"n": "eng0"}]


def test_a_part_that_breaks_under_a_query_is_left_out_of_it(three_parts: list[Path], store: Store) -> None:
    query = "SELECT candidate_name AS n FROM trials ORDER BY n"
    assert len(store.sql(query)) == 3
    whole = three_parts[1].read_bytes()
    three_parts[1].write_bytes(whole[:4] + bytes(len(whole) - 1000) + whole[-996:])
    assert store.sql(query).column("n").to_pylist() == ["eng0", "eng2"]
    assert [d.path for d in store.damage] == [str(three_parts[1])]


def test_a_part_that_was_mended_counts_again(three_parts: list[Path], store: Store) -> None:
    whole = three_parts[1].read_bytes()
    three_parts[1].write_bytes(b"")
    assert names(store) == ["eng0", "eng2"]
    three_parts[1].write_bytes(whole)
    assert names(store) == ["eng0", "eng1", "eng2"]
    assert store.damage == ()


def test_a_plan_in_a_damaged_part_is_missed_and_others_are_found(store: Store, tmp_path: Path) -> None:
    blobs = [b"plan 0", b"plan 1"]
    digests = [stored_plan(blob).plan.digest for blob in blobs]
    for blob in blobs:
        store.append_plans([stored_plan(blob)])
    part = min((tmp_path / "store" / "plans" / "v1").iterdir())
    flip(part, 50)
    reader = open_store(tmp_path / "store")
    assert reader.plan(digests[1]) == blobs[1]
    with pytest.raises(StoreError, match=digests[0]):
        reader.plan(digests[0])
    assert [d.path for d in reader.damage] == [str(part)]
    assert store.plan(digests[1]) == blobs[1]


def test_a_query_on_trials_does_not_read_the_plans(store: Store, tmp_path: Path) -> None:
    store.append_trials([trial()])
    store.append_plans([stored_plan(b"plan")])
    flip(next((tmp_path / "store" / "plans" / "v1").iterdir()), 50)
    store.sql("SELECT * FROM trials")
    assert store.damage == ()
    assert len(store.sql("SELECT * FROM plans")) == 0
    assert len(store.damage) == 1


def test_damaged_proposals_and_targets_are_named_too(store: Store, tmp_path: Path) -> None:
    store.append_proposals([StoredProposal("p", TARGET.key, "s", Proposal("cudnn"))])
    store.put_target(TARGET)
    flip(next((tmp_path / "store" / "proposals" / "v1").iterdir()), 50)
    target = tmp_path / "store" / "meta" / "targets" / f"{TARGET.key}.json"
    target.write_text(target.read_text().replace("H200", "H100"))
    assert store.proposals(TARGET.key) == {}
    assert store.targets() == {}
    assert [Path(d.path).suffix for d in store.damage] == [".parquet", ".json"]
    store.put_target(TARGET)
    assert store.targets() == {TARGET.key: TARGET}


def test_a_copy_of_a_store_is_a_store(three_parts: list[Path], tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    store = open_store(tmp_path / "copy")
    assert names(store) == ["eng0", "eng1", "eng2"]
    assert store.damage == ()
