"""A power loss at any step of any write: no broken store, and nothing lost that was acknowledged."""

import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tests.store.power import Disk
from tunefarm.model.candidate import Proposal
from tunefarm.store import Store, StoredProposal
from tunefarm.store.format import FORMAT_FILE

SEEDS = 2
"""States of the disk that are tried after each step."""


def rows(store: Store) -> set[str]:
    """Everything of a store that has a name: rows by what they hold, plans by their bytes, targets."""
    trials, plans, proposals = (
        store._tables[view].read(columns).to_pylist()
        for view, columns in (
            ("all_trials", ["candidate_name", "time_us", "finished_at"]),
            ("plans", ["digest"]),
            ("all_proposals", ["search"]),
        )
    )
    found = {str(row) for row in trials} | {store.plan(row["digest"]).decode() for row in plans}
    return found | {row["search"] for row in proposals} | set(store.targets())


def make(path: Path, acknowledge: Callable[[], None]) -> None:
    open_store(path, create=True)
    acknowledge()


def append(path: Path, acknowledge: Callable[[], None]) -> None:
    store = open_store(path, create=True)
    store.put_target(TARGET)
    acknowledge()
    store.append_plans([stored_plan(b"new plan")])
    acknowledge()
    store.append_trials([trial(name="new", minutes=30)])
    acknowledge()
    store.append_proposals([StoredProposal("p", TARGET.key, "new search", Proposal("cudnn"))])
    acknowledge()


def compact(path: Path, acknowledge: Callable[[], None]) -> None:
    open_store(path).compact(grace=timedelta())
    acknowledge()


def prune(path: Path, acknowledge: Callable[[], None]) -> None:
    assert open_store(path).prune(NOON + timedelta(days=1), grace=timedelta()).superseded == 2
    acknowledge()


def merge(path: Path, acknowledge: Callable[[], None]) -> None:
    open_store(path, create=True).merge(open_store(path.with_name("other")))
    acknowledge()


def upgrade(path: Path, acknowledge: Callable[[], None]) -> None:
    (path / FORMAT_FILE).write_text('{"format": 1}')
    append(path, acknowledge)


def fill(path: Path, word: str) -> None:
    store = open_store(path, create=True)
    for number in range(3):
        store.append_trials([trial(name=word, us=10.0 + number, minutes=number)])
        store.append_plans([stored_plan(f"{word} plan {number}".encode())])
    store.append_proposals([StoredProposal("p", TARGET.key, word, Proposal("cudnn"))])


@pytest.mark.parametrize("work", [make, append, compact, prune, merge, upgrade], ids=lambda work: work.__name__)
def test_nothing_is_broken_and_nothing_acknowledged_is_lost(
    work: Callable[[Path, Callable[[], None]], None], tmp_path: Path
) -> None:
    path = tmp_path / "disk" / "store"
    path.parent.mkdir()
    disk = Disk(path.parent)
    with disk.recorded():
        if work is not make:
            fill(path, "old")
    fill(path.with_name("other"), "other")
    acknowledged: list[tuple[int, set[str]]] = [
        (len(disk.steps), rows(open_store(path)) if work is not make else set())
    ]
    began = len(disk.steps)
    with disk.recorded():
        work(path, lambda: acknowledged.append((len(disk.steps), rows(open_store(path)))))
    if work is upgrade:
        assert any(step[0] == "rename" and step[2].endswith(FORMAT_FILE) for step in disk.steps[began:])
    final = acknowledged[-1][1]  # of what a prune drops nothing is owed
    everything = set().union(*(found for _, found in acknowledged))
    assert len(disk.steps) > began + 3
    for step in range(began, len(disk.steps) + 1):
        owed = max((found for found in acknowledged if found[0] <= step), key=lambda found: found[0])[1]
        for seed in range(SEEDS):
            state = tmp_path / "state"
            disk.lost_at(step, random.Random(1000 * step + seed), state)
            store = open_store(state / "store", create=True)  # it is a store, or its maker was not done
            found = rows(store)
            assert store.damage == (), disk.steps[:step]
            assert owed & final <= found <= everything, (step, seed)
            shutil.rmtree(state)
