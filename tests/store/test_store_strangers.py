"""Sound files of another version's words, or of nobody's: left out with a warning, never an internal error."""

import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import StoreError
from tunefarm.store import Store, StoredProposal
from tunefarm.store.disk import DiskFolder
from tunefarm.store.parts import Parts, new_part, new_part_name
from tunefarm.store.rows import trial_row
from tunefarm.store.schema import PLANS, PROPOSALS, TRIALS

DEEP = "[" * 100_000
DEEP_OBJECT = '{"a":' * 100_000


def put(path: Path, table: str, schema: pa.Schema, row: dict[str, Any]) -> None:
    """Publish one row as it is, with a right proof."""
    sink = pa.BufferOutputStream()
    name = new_part_name()
    rows = pa.Table.from_pylist([{**row, "part": name, "part_row": 0}], schema=schema)
    pq.write_table(rows, sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    Parts(DiskFolder(path), table, lambda _: None).publish(new_part(name, data, 1), data)


STRANGE_ROWS: list[dict[str, Any]] = [
    *(
        {column: text}
        for column in ("protocol_json", "problem_json", "knobs", "resolved_knobs")
        for text in ("[]", "{", "7", "null", '"text"', DEEP, DEEP_OBJECT, None)
    ),
    {"protocol_json": "{}"},
    {"protocol_json": '{"cache":"cold","seed":[]}'},
    {"problem_json": "{}"},
    {"problem_json": '{"n":[],"dtype":{}}'},
    {"knobs": '{"CFG":[1]}'},
    *({column: None} for column in ("op", "problem", "engine", "candidate_name", "rank", "status", "stage", "worker")),
    {"status": "perhaps"},
    {"errors": None},
    {"blocks": None},
    {"blocks": [None]},
    {"finished_at": None},
    {"finished_at": pa.scalar(2**62, pa.timestamp("us", "UTC"))},
    {"trial_key": None},
]


@pytest.mark.parametrize("change", STRANGE_ROWS, ids=lambda change: str(change)[:40])
def test_a_strange_row_is_left_out_and_said_so(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    store.append_trials([trial(), trial(name="eng1")])
    put(tmp_path / "store", "trials", TRIALS, {**trial_row(trial(name="eng2", n=2048)), **change})
    reader = open_store(tmp_path / "store")
    with caplog.at_level(logging.WARNING, "tunefarm.store.trials"):
        assert sorted(t.outcome.candidate.name for t in reader.trials()) == ["eng0", "eng1"]
    assert "1 of 3 stored trials are in another version's words: left out" in caplog.text
    assert reader.finished(TARGET.key)
    assert reader.resolve_problem("toy.1024") == trial().problem.key


def test_an_undated_row_hides_no_dated_one(store: Store, tmp_path: Path) -> None:
    store.append_trials([trial()])
    put(tmp_path / "store", "trials", TRIALS, {**trial_row(trial()), "finished_at": None})
    assert open_store(tmp_path / "store").trials() == [trial()]


def test_a_row_that_lies_about_its_problem_spoils_no_other(store: Store, tmp_path: Path) -> None:
    other = trial_row(trial(n=2048))
    put(tmp_path / "store", "trials", TRIALS, {**trial_row(trial()), "problem_json": other["problem_json"]})
    later = trial(name="eng1", minutes=1)
    store.append_trials([later])
    assert open_store(tmp_path / "store").trials() == [later]


@pytest.mark.parametrize("column", ["name", "label"])
def test_a_row_without_a_name_is_none_that_a_problem_can_be_found_by(store: Store, tmp_path: Path, column: str) -> None:
    store.append_trials([trial()])
    put(tmp_path / "store", "trials", TRIALS, {**trial_row(trial(n=2048)), column: None})
    assert open_store(tmp_path / "store").resolve_problem("toy.1024") == trial().problem.key


@pytest.mark.parametrize("text", ["{}", "7", "[1]", '[{"knobs":7}]', '[{"knobs":[],"name":"x"}]', DEEP, None])
def test_a_strange_proposal_is_asked_for_again(store: Store, tmp_path: Path, text: str | None) -> None:
    sound = Proposal("torch")
    store.append_proposals([StoredProposal("p", TARGET.key, "s", sound)])
    strange = {"problem": "p", "target": TARGET.key, "search": "s", "engine": "cudnn", "proposed_at": NOON}
    put(tmp_path / "store", "proposals", PROPOSALS, {**strange, "candidates_json": text})
    assert open_store(tmp_path / "store").proposals(TARGET.key) == {("p", "s", "torch"): sound}


@pytest.mark.parametrize("raw_bytes", [None, -5, 2**63 - 1])
@pytest.mark.parametrize("packed", [None, b"no zlib"])
def test_a_strange_plan_is_a_store_error(
    store: Store, tmp_path: Path, raw_bytes: int | None, packed: bytes | None
) -> None:
    digest = stored_plan(b"plan").plan.digest
    row = {"digest": digest, "created_at": datetime.now(UTC), "raw_bytes": raw_bytes, "packed": packed}
    put(tmp_path / "store", "plans", PLANS, row)
    with pytest.raises(StoreError, match=f"plan {digest} are not that plan's"):
        open_store(tmp_path / "store").plan(digest)


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "7", "null", DEEP, DEEP_OBJECT),
        *(
            json.dumps({**TARGET.to_dict(), **change})
            for change in ({"profile": DEEP}, {"profile": "7"}, {"profile": '["deviceVer"]'}, {"device": 5})
        ),
        json.dumps({**TARGET.to_dict(), "device": "\ud800"}),
    ],
    ids=lambda text: text[:20],
)
def test_a_strange_target_is_damage(store: Store, tmp_path: Path, text: str) -> None:
    store.put_target(TARGET)
    folder = tmp_path / "store" / "meta" / "targets"
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    (folder / f"{name}.json").write_text(text)
    reader = open_store(tmp_path / "store")
    assert reader.targets() == {TARGET.key: TARGET}
    assert [d.path for d in reader.damage] == [str(folder / f"{name}.json")]
    assert len(reader.sql("SELECT * FROM targets")) == 1


@pytest.mark.parametrize("text", ["7", "null", "{}", DEEP, DEEP_OBJECT])
def test_a_strange_proof_is_damage(store: Store, tmp_path: Path, text: str) -> None:
    store.append_trials([trial()])
    proof = next((tmp_path / "store" / "meta" / "trials" / "v1").iterdir())
    proof.write_text(text)
    reader = open_store(tmp_path / "store")
    assert reader.trials() == []
    assert "unproven" in reader.damage[0].what
