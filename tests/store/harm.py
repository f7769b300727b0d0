"""Harm done to stores: damaged files, killed writers. Each function is one round, told by a seed, that must hold."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.store import writers
from tests.store.make import TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Proposal
from tunefarm.store import StoredProposal

KINDS: dict[str, Callable[[bytearray, random.Random], object]] = {
    "bit": lambda data, dice: data.__setitem__(i := dice.randrange(len(data)), data[i] ^ 1 << dice.randrange(8)),
    "cut": lambda data, dice: data.__delitem__(slice(dice.randrange(len(data)), None)),
    "appended": lambda data, dice: data.extend(dice.randbytes(dice.randint(1, 100))),
    "zeros": lambda data, dice: _overwrite(data, dice, bytes),
    "noise": lambda data, dice: _overwrite(data, dice, dice.randbytes),
    "footer": lambda data, dice: data.__setitem__(i := -dice.randint(1, min(len(data), 200)), data[i] ^ 0xFF),
}


def _overwrite(data: bytearray, dice: random.Random, content: Callable[[int], bytes]) -> None:
    start = dice.randrange(len(data))
    size = min(dice.randint(1, 64), len(data) - start)
    data[start : start + size] = content(size)


def make(path: Path) -> None:
    """A store of a few parts of every table, some of them compacted."""
    store = open_store(path, create=True)
    for number in range(4):
        store.append_trials([trial(name=f"eng{number}_{row}", us=10.0 + row) for row in range(3)])
        store.append_plans([stored_plan(f"plan {number}".encode())])
        store.append_proposals([StoredProposal("p", TARGET.key, f"s{number}", Proposal("cudnn"))])
        if number == 1:
            for done in store.compact():
                assert done.after == 1
    store.put_target(TARGET)


def read(path: Path) -> tuple[dict[str, set[str]], set[str]]:
    """Every row by what it holds, through every way to read; and the files that were named as damaged."""
    store = open_store(path)
    found = {view: {str(row) for row in store.select(view).to_pylist()} for view in ("all_trials", "all_proposals")}
    found["trials"] = {str(one) for one in store.trials()}
    found["finished"] = store.finished(TARGET.key)
    found["plans"] = {store.plan(row["digest"]).decode() for row in store.select("plans").to_pylist()}
    found["targets"] = {str(target) for target in store.targets().values()}
    return found, {damage.path for damage in (*store.damage, *store.check())}


def damage_round(path: Path, whole: dict[str, set[str]], seed: int) -> str:
    """Damage one file of a store that `make` made, read it, and mend it. Returns the kind of damage.

    What is read must be rows that were written, and the file must be named.
    """
    dice = random.Random(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "format.json")
    file = dice.choice(files)
    before = file.read_bytes()
    kind = dice.choice([*KINDS, "swapped"])
    data = bytearray(before)
    if kind == "swapped":
        data[:] = dice.choice([other for other in files if other != file]).read_bytes()
    else:
        KINDS[kind](data, dice)
    if bytes(data) == before:
        return "none"
    try:
        file.write_bytes(data)
        found, named = read(path)
    finally:
        file.write_bytes(before)
    for view, rows in found.items():
        assert rows <= whole[view], (seed, kind, file, rows - whole[view])
    is_proof = file.suffix == ".json" and "targets" not in file.parts
    part = str(file).replace("/meta/", "/").removesuffix(".json") if is_proof else str(file)
    proof_says_the_same = is_proof and found == whole
    assert proof_says_the_same or any(part in place for place in named), (seed, kind, file)
    return kind


def kill_round(path: Path, seed: int, writing: int = 16, batches: int = 2) -> None:
    """Many writers, one of them killed at a random moment or byte, and a reader that looks all the while."""
    dice = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.writers"])
    if dice.random() < 0.5:
        doomed = context.Process(target=writers.append_for_ever, args=(path, writing))
    else:
        open_store(path, create=True)
        doomed = context.Process(target=writers.append_and_die_writing, args=(path, dice.randrange(20_000)))
    honest = [context.Process(target=writers.append_batches, args=(path, w, batches, 3)) for w in range(writing - 1)]
    for process in (doomed, *honest):
        process.start()
    time.sleep(dice.random())
    if doomed.pid is not None and doomed.is_alive():
        os.kill(doomed.pid, signal.SIGKILL)
    while any(process.is_alive() for process in honest):
        if (path / "meta" / "format.json").exists():
            reader = open_store(path)
            reader.trials()
            assert reader.damage == (), seed
        time.sleep(0.05)
    for process in (doomed, *honest):
        process.join()
    assert [process.exitcode for process in honest] == [0] * (writing - 1), seed
    store = open_store(path)
    names = {t.outcome.candidate.name for t in store.trials()}
    expected = {f"eng{w}_{b}_{row}" for w in range(writing - 1) for b in range(batches) for row in range(3)}
    assert expected <= names, seed
    assert store.check() == (), seed
