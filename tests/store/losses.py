"""What a store may be after its process was killed, or the power lost, at any step of anything that changes it."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tests.store.power import Disk
from tunefarm.model.candidate import Proposal
from tunefarm.store import Store, StoredProposal
from tunefarm.store.format import FORMAT_FILE, FORMAT_TEXT

STRAY = "stray.parquet"
"""The one file that may be damaged."""
Work = Callable[[Path, Callable[[], None]], None]
"""Changes the store at a path, and says each time that something is acknowledged. Run again, it ends the same."""


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
    open_store(path).prune(NOON + timedelta(days=1), grace=timedelta())
    acknowledge()


def merge(path: Path, acknowledge: Callable[[], None]) -> None:
    open_store(path, create=True).merge(open_store(path.with_name("other")))
    acknowledge()


def upgrade(path: Path, acknowledge: Callable[[], None]) -> None:
    (path / FORMAT_FILE).write_text('{"format": 1}')
    append(path, acknowledge)
    assert (path / FORMAT_FILE).read_bytes() == FORMAT_TEXT


def tell(path: Path, acknowledge: Callable[[], None]) -> None:
    """Replace what a sweep tells of itself, and forget another."""
    statuses = open_store(path, create=True).statuses
    for record in (b"status old", b"status new"):
        statuses.put("s1", record)
        acknowledge()
    statuses.put("s2", b"status new")
    statuses.remove("s2")
    acknowledge()


def set_aside(path: Path, acknowledge: Callable[[], None]) -> None:
    """Move a damaged file away, which comes first."""
    folder = path / "trials" / "v1"
    with (folder / STRAY).open("wb") as file:
        file.write(b"PAR1")
        file.flush()
        os.fsync(file.fileno())
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    open_store(path).check(set_aside=True)
    acknowledge()


WORKS: tuple[Work, ...] = (make, append, compact, prune, merge, upgrade, tell, set_aside)


def fill(path: Path, word: str) -> None:
    store = open_store(path, create=True)
    for number in range(3):
        store.append_trials([trial(name=word, us=10.0 + number, minutes=number)])
        store.append_plans([stored_plan(f"{word} plan {number}".encode())])
    store.append_proposals([StoredProposal("p", TARGET.key, word, Proposal("cudnn"))])


def content(store: Store) -> set[str]:
    """Everything of a store that has a name: rows by what they hold, plans by their bytes, targets, records."""
    trials, plans, proposals = (
        store._tables[view].read(columns).to_pylist()
        for view, columns in (
            ("all_trials", ["candidate_name", "time_us", "finished_at"]),
            ("plans", ["digest"]),
            ("all_proposals", ["search"]),
        )
    )
    found = {str(row) for row in trials} | {store.plan(row["digest"]).decode() for row in plans}
    found |= {row["search"] for row in proposals} | set(store.targets())
    return found | {record.decode() for record in store.statuses.all().values()}


@dataclass(frozen=True)
class Loss:
    """One state of the disk, and what must be read from it."""

    step: int
    seed: int | None
    """Of the power's loss; None where only the process was killed, and the disk has all that it did."""
    state: Path
    """The store as it is then."""
    owed: set[str]
    """What was acknowledged before, less what the work drops."""
    possible: set[str]
    final: set[str]
    """What is read when the work is through."""

    def check(self, work: Work) -> None:
        """See that nothing is broken, that what was acknowledged is there, and that the work can be done anew."""
        store = open_store(self.state, create=True)  # it is a store, or its maker was not done
        found = content(store)
        where = (work.__name__, self.step, self.seed)
        assert {Path(damage.path).name for damage in store.damage} <= {STRAY}, where
        assert self.owed <= found <= self.possible, where
        if self.seed is None:
            work(self.state, lambda: None)
            assert content(open_store(self.state)) == self.final, where


def losses(work: Work, folder: Path, seeds: int) -> Iterator[Loss]:
    """Do the work, then give each state that a kill or a power loss after each of its steps may leave.

    Args:
        work: one of `WORKS`.
        folder: an empty one. Each state in it lasts until the next is asked for.
        seeds: states that a power loss is tried with after each step.
    """
    path = folder / "disk" / "store"
    path.parent.mkdir(parents=True)
    disk = Disk(path.parent)
    with disk.recorded():
        if work is not make:
            fill(path, "old")
    fill(path.with_name("other"), "other")
    acknowledged = [(len(disk.steps), content(open_store(path)) if work is not make else set())]
    began = len(disk.steps)
    with disk.recorded():
        work(path, lambda: acknowledged.append((len(disk.steps), content(open_store(path)))))
    final = acknowledged[-1][1]  # of what a prune drops nothing is owed
    everything = set().union(*(found for _, found in acknowledged))
    for step in range(began, len(disk.steps) + 1):
        owed = max((found for found in acknowledged if found[0] <= step), key=lambda found: found[0])[1]
        for seed in (None, *range(seeds)):
            state = folder / "state"
            if seed is None:
                disk.killed_at(step, state)
                shutil.copytree(path.with_name("other"), state / "other")
            else:
                disk.lost_at(step, random.Random(1000 * step + seed), state)
            yield Loss(step, seed, state / "store", owed & final, everything, final)
            shutil.rmtree(state)
