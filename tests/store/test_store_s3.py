"""A store in an object store behaves as one on a disk: a real S3 server on loopback."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from tests import s3
from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tests.store.test_store_compaction import VIEWS, fill
from tunefarm.model.errors import StoreError, StoreUnreachable
from tunefarm.store import Store


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3.served() as server:
        yield server


@pytest.fixture
def uri(server: str, request: pytest.FixtureRequest) -> Callable[[str], str]:
    return s3.new_bucket(server, f"store-{abs(hash(request.node.nodeid))}")


def views(store: Store) -> dict[str, list[dict[str, object]]]:
    return {view: store.select(view).to_pylist() for view in VIEWS}


def test_what_is_written_there_is_read_there(uri: Callable[[str], str]) -> None:
    place = uri("farm/store")
    with pytest.raises(StoreError, match=r"is no tunefarm store.*run a sweep") as told:
        open_store(place)
    assert "SECRET" not in str(told.value)
    assert not Store.is_there(place)
    fill(open_store(place, create=True))
    assert Store.is_there(place)
    store = open_store(place, create=True)
    assert store.plan(stored_plan(b"plan 3").plan.digest) == b"plan 3"
    assert len(store.trials()) == len(store.finished(TARGET.key)) == 3
    assert store.targets() == {TARGET.key: TARGET}
    assert store.resolve_problem("toy.1024") == trial().problem.key
    assert store.damage == ()


def test_compaction_merge_prune_and_check_are_the_same_there(uri: Callable[[str], str], tmp_path: Path) -> None:
    place = uri("store")
    fill(open_store(place, create=True))
    before = views(open_store(place))
    assert [(c.before, c.after) for c in open_store(place).compact()] == [(6, 1)] * 3
    assert views(open_store(place)) == before
    assert [c.removed for c in open_store(place).compact(grace=timedelta())] == [6] * 3
    assert views(open_store(place)) == before
    local = open_store(tmp_path / "local", create=True)
    assert local.merge(open_store(place))["trials"] == 18
    assert views(open_store(tmp_path / "local")) == before
    assert set(open_store(place).merge(local).values()) == {0}
    assert open_store(place).check() == ()
    assert open_store(place).prune(NOON + timedelta(days=9), grace=timedelta()).superseded == 15
    assert views(open_store(place))["trials"] == before["trials"]


def test_a_damaged_object_is_named_without_secrets_and_set_aside(uri: Callable[[str], str]) -> None:
    place = uri("store")
    store = open_store(place, create=True)
    store.append_trials([trial()])
    store.append_trials([trial(name="eng1")])
    system, base = pa_fs.FileSystem.from_uri(place)
    part = min(info.path for info in system.get_file_info(pa_fs.FileSelector(f"{base}/trials/v1")))
    data = bytearray(system.open_input_stream(part).read())
    data[50] ^= 1
    with system.open_output_stream(part) as stream:
        stream.write(bytes(data))
    reader = open_store(place)
    assert [t.outcome.candidate.name for t in reader.trials()] == ["eng1"]
    (damage,) = reader.damage
    assert damage.path == f"s3://{part}"
    assert len(reader.check(set_aside=True)) == 1
    assert open_store(place).check() == ()
    assert system.get_file_info(f"{base}/damaged/trials/v1/{Path(part).name}").is_file


def test_a_store_that_does_not_answer_may_be_back(uri: Callable[[str], str]) -> None:
    with s3.served() as other:
        place = s3.new_bucket(other, "gone")("store")
        store = open_store(place, create=True)
        store.append_trials([trial()])
    with pytest.raises(StoreUnreachable, match="check the network") as told:
        store.append_trials([trial()])
    assert "SECRET" not in str(told.value)
    with pytest.raises(StoreError, match="can't read s3://gone/store"):
        open_store(place)


@pytest.mark.parametrize("place", ["s3://", "nonsense://x/y", "s3://no-such-bucket-anywhere/store?{query}"])
def test_a_place_that_is_none_is_told(server: str, place: str) -> None:
    place = place.format(
        query=f"scheme=http&endpoint_override={server}&region=us-east-1&access_key=a&secret_key=SECRET"
    )
    with pytest.raises(StoreError) as told:
        open_store(place, create=True)
    assert "SECRET" not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_uri_is_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a store"
    open_store(path.as_uri(), create=True).append_trials([trial()])
    assert open_store(path).trials() == [trial()]
