"""Jobs for processes that use a store, some of which die of it."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.store.make import open_store, stored_plan, trial
from tunefarm.model.errors import StoreError

STEPS = ("mkdir", "open", "fsync", "rename", "close", "unlink")


def append_batches(path: Path, writer: int, batches: int, rows: int) -> None:
    """Append batches of rows that no other writer has."""
    store = open_store(path, create=True)
    for batch in range(batches):
        store.append_trials([trial(name=f"eng{writer}_{batch}_{row}", minutes=batch) for row in range(rows)])
        store.append_plans([stored_plan(f"plan {writer} {batch}".encode())])


def append_same(path: Path, writer: int, batches: int) -> None:
    """Append rows of the same keys as every other writer."""
    store = open_store(path, create=True)
    for batch in range(batches):
        store.append_trials([trial(name=f"eng{row}", us=10.0 + writer, minutes=batch) for row in range(5)])


def append_for_ever(path: Path, writer: int) -> NoReturn:
    """Append until killed."""
    store = open_store(path, create=True)
    number = 0
    while True:
        store.append_trials([trial(name=f"doomed{writer}_{number}_{row}") for row in range(50)])
        number += 1


def append_and_die_at(path: Path, step: int) -> None:
    """Append one batch, killed before the step-th system call that changes something; past the last one, live."""
    store = open_store(path)
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return run

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    store.append_trials([trial(name=f"late{row}", minutes=1) for row in range(3)])


def append_and_die_writing(path: Path, limit: int) -> None:
    """Append one batch, killed by the kernel in the middle of the write that takes a file over the limit."""
    store = open_store(path)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    store.append_trials([trial(name=f"late{row}", minutes=1) for row in range(3)])


def query_until_interrupted(path: Path) -> None:
    """Run a query of hours and interrupt it, as Ctrl-C does; exits with 130 when that ends it."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        open_store(path).sql("SELECT sum(hash(a.range * b.range)) FROM range(10000000) a, range(10000000) b")
    except KeyboardInterrupt:
        sys.exit(130)


def append_on_a_full_disk(path: Path, limit: int) -> None:
    """Append where writes past the limit fail; exits with 7 if that is a StoreError that says how to mend it."""
    store = open_store(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        store.append_trials([trial(name=f"late{row}", minutes=1) for row in range(3)])
    except StoreError as error:
        sys.exit(7 if "raise the limit" in str(error) and str(path) in str(error) else 1)
