"""Stores that earlier versions wrote stay readable and writable."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store.make import open_store, trial
from tunefarm.model.keys import canonical_json, content_key
from tunefarm.model.trial import Standing, trial_key
from tunefarm.report.summary import summarize
from tunefarm.ship.policy import Policy
from tunefarm.ship.selection import select
from tunefarm.store import Store
from tunefarm.store.tables import _fits

GOLDEN = sorted((Path(__file__).parent / "golden").iterdir())


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a store that a sweep of an earlier version wrote: three problems on a CPU, seven candidates."""
    shutil.copytree(request.param, tmp_path / "old")
    return tmp_path / "old"


def test_an_earlier_version_s_store_is_read(golden: Path) -> None:
    store = Store.open(golden)
    (target,) = store.targets()
    assert len(store.finished(target)) == 7
    assert len(store.proposals(target)) == 3
    assert len(store.sql("SELECT * FROM trials")) == 7
    assert len(store.sql("SELECT * FROM winners")) == 3
    key = store.resolve_problem("attention")
    (summary,) = summarize(store.trials(problems={key}))
    assert len(store.trials(problems={key})) == 5
    assert summary.winner is not None
    winners = [t for t in store.trials() if t.outcome.standing is Standing.WON]
    assert all(store.plan(t.plan_digest) for t in winners if t.plan_digest)
    assert len(select(store, Policy()).decisions) == 3
    assert store.damage == ()


def test_an_earlier_version_s_store_is_written(golden: Path) -> None:
    before = Store.open(golden).trials()
    open_store(golden, create=True).append_trials([trial()])
    assert open_store(golden).trials() == [trial()]
    assert len(Store.open(golden).sql("SELECT * FROM trials")) == 8
    assert [t for t in Store.open(golden).trials() if t.job == "golden"] == before


def republished(part: Path, table: pa.Table) -> None:
    """Put another content in a part's place, as a writer of another version would have."""
    pq.write_table(table, part, store_schema=False)
    data = part.read_bytes()
    proof = part.parents[2] / "meta" / part.parent.relative_to(part.parents[2]) / f"{part.stem}.json"
    proof.write_text(json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "rows": len(table)}))


@pytest.fixture
def part(store: Store, tmp_path: Path) -> Path:
    store.append_trials([trial()])
    return next((tmp_path / "store" / "trials" / "v1").iterdir())


def test_columns_that_came_later_are_null_in_an_older_part(part: Path, tmp_path: Path) -> None:
    republished(part, pq.read_table(part).drop_columns(["eager_us", "replay_us", "gb_per_s"]))
    store = open_store(tmp_path / "store")
    assert store.trials() == [trial()]
    assert store.sql("SELECT gb_per_s FROM trials").to_pylist() == [{"gb_per_s": None}]


def test_a_protocol_that_lacks_later_fields_gets_their_defaults(store: Store, tmp_path: Path) -> None:
    store.append_trials([trial()])
    part = next((tmp_path / "store" / "trials" / "v1").iterdir())
    rows = pq.read_table(part)
    fields = json.loads(rows.column("protocol_json")[0].as_py())
    del fields["seed"]
    protocol = content_key("protocol", fields)
    key = trial_key(trial().problem.key, trial().target, trial().outcome.candidate.key, protocol)
    for column, text in (("protocol_json", canonical_json(fields)), ("protocol", protocol), ("trial_key", key)):
        rows = rows.set_column(rows.schema.get_field_index(column), column, pa.array([text]))
    republished(part, rows)
    reader = open_store(tmp_path / "store")
    assert reader.trials() == [trial()]
    assert reader.finished(trial().target) == {key}


@pytest.mark.parametrize(
    ("found", "fits"),
    [
        ({"a": pa.int64()}, True),
        ({}, True),
        ({"a": pa.int32()}, False),
        ({"a": pa.int64(), "z": pa.string()}, False),
        ({"l": pa.list_(pa.struct([("x", pa.float64())]))}, True),
        ({"l": pa.list_(pa.struct([("z", pa.float64())]))}, False),
        ({"l": pa.list_(pa.struct([("x", pa.float32())]))}, False),
        ({"l": pa.float64()}, False),
    ],
)
def test_a_part_fits_if_its_columns_are_some_of_the_table_s(found: dict[str, pa.DataType], fits: bool) -> None:
    row = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    schema = pa.schema([("a", pa.int64()), ("l", pa.list_(row))])
    assert _fits(pa.schema(list(found.items())), schema) is fits
