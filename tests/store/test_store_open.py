"""What is a store, and what is told to whoever names something else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.make import TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import StoreError
from tunefarm.store import Store, StoredProposal


def test_a_store_names_its_format(store: Store, tmp_path: Path) -> None:
    assert json.loads((tmp_path / "store" / "meta" / "format.json").read_text()) == {"format": 2}


def test_opening_a_store_again_keeps_what_it_holds(store: Store, tmp_path: Path) -> None:
    store.append_trials([trial()])
    again = open_store(tmp_path / "store", create=True)
    assert again.trials() == [trial()]


def test_a_store_can_be_made_where_its_maker_died(tmp_path: Path) -> None:
    (tmp_path / "store" / "meta").mkdir(parents=True)
    (tmp_path / "store" / "tmp").mkdir()
    open_store(tmp_path / "store", create=True).append_trials([trial()])
    assert open_store(tmp_path / "store").trials() == [trial()]


def nothing(path: Path) -> None:
    """Leave the path as it is: absent."""


def empty(path: Path) -> None:
    path.mkdir()


def file(path: Path) -> None:
    path.write_text("hello")


def filled(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("hello")


def newer(path: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "format.json").write_text('{"format": 3}')


def garbled(path: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "format.json").write_bytes(b"\xff{")


def nested(path: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "format.json").write_text("[" * 100_000)


def listed(path: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "format.json").write_text("[1]")


def formless(path: Path) -> None:
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "format.json").write_text('{"format": "one"}')


def without_meta(path: Path) -> None:
    (path / "trials" / "v1").mkdir(parents=True)


@pytest.mark.parametrize(
    ("prepare", "create", "message"),
    [
        (nothing, False, "is no tunefarm store.*run a sweep"),
        (empty, False, "is no tunefarm store.*run a sweep"),
        (filled, False, "is no tunefarm store"),
        (file, False, "is no folder"),
        (file, True, "is no folder"),
        (filled, True, r"holds 'thesis.tex'; name an empty or new folder"),
        (without_meta, True, "restore the store's meta folder"),
        (newer, False, "format 3.*upgrade tunefarm"),
        (newer, True, "format 3.*upgrade tunefarm"),
        (garbled, False, "damaged.*restore it"),
        (nested, False, "damaged.*nested too deep.*restore it"),
        (listed, True, "damaged.*not an object.*restore it"),
        (formless, True, "never was; restore it"),
    ],
)
def test_what_is_no_store_is_refused_with_a_mend(
    tmp_path: Path, prepare: Callable[[Path], None], create: bool, message: str
) -> None:
    path = tmp_path / "place"
    prepare(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=message) as raised:
        open_store(path, create=create)
    assert str(path) in str(raised.value)
    assert raised.value.exit_code == 4
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_can_not_be_written_is_refused_before_a_sweep_begins(store: Store, tmp_path: Path) -> None:
    probe = tmp_path / "store" / "tmp"
    for left in probe.iterdir():
        left.unlink()
    probe.rmdir()
    probe.write_text("in the way")
    with pytest.raises(StoreError, match="can't write"):
        open_store(tmp_path / "store", create=True)
    assert open_store(tmp_path / "store").trials() == []  # reading needs no such thing


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_refused_with_a_mend(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "tmp").chmod(0o500)
    with pytest.raises(StoreError, match="make the folder writable"):
        open_store(tmp_path / "store", create=True)


def test_opening_a_store_to_write_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    open_store(tmp_path / "store", create=True)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def removed(path: Path) -> None:
    shutil.rmtree(path)


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


WRITES: list[Callable[[Store], None]] = [
    lambda store: store.append_trials([trial(name="eng1")]),
    lambda store: store.append_plans([stored_plan(b"plan")]),
    lambda store: store.append_proposals([StoredProposal("p", TARGET.key, "s", Proposal("cudnn"))]),
    lambda store: store.put_target(TARGET),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lose", [removed, moved, emptied])
def test_a_store_that_went_away_is_not_made_again_by_a_write(
    store: Store, tmp_path: Path, lose: Callable[[Path], None], write: Callable[[Store], None]
) -> None:
    store.append_trials([trial()])
    lose(tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=r"is gone.*put it back") as raised:
        write(store)
    assert str(tmp_path / "store") in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_was_put_back_is_written_again(store: Store, tmp_path: Path) -> None:
    moved(tmp_path / "store")
    with pytest.raises(StoreError, match="is gone"):
        store.append_trials([trial()])
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    store.append_trials([trial()])
    assert open_store(tmp_path / "store").trials() == [trial()]


def test_a_table_that_can_not_be_listed_is_a_store_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store" / "trials").mkdir()
    (tmp_path / "store" / "trials" / "v1").write_text("in the way")
    with pytest.raises(StoreError, match="can't list"):
        store.finished(TARGET.key)
