"""Tells the store about once a second how a sweep is, so that anybody who sees the store can look."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime

from tunefarm.farm.progress import SweepState
from tunefarm.farm.roster import Roster
from tunefarm.farm.status import Driver, Ended, Liveness, SweepStatus, read_status
from tunefarm.model.errors import StoreError
from tunefarm.store import Store

EVERY_S = 1.0
FAREWELL_S = 1.0
"""How long the end of a sweep waits for its last record."""
KEPT = 20
"""Records of sweeps that run no more, newest first. Later sweeps remove older ones."""


class Bulletin:
    """The record of one sweep. Written by a thread of its own: a store that is slow or away disturbs no sweep."""

    def __init__(self, store: Store, sweep: str, job: str, roster: Roster) -> None:
        """Nothing is told before `open`."""
        self._store = store
        self._sweep = sweep
        self._job = job
        self._roster = roster
        self._driver = Driver.here()
        self._begun_at = datetime.now(UTC)
        self._state: SweepState | None = None
        self._ended: Ended | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tunefarm-bulletin", daemon=True)

    def open(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def update(self, state: SweepState) -> None:
        """Take in how far the sweep is."""
        self._state = state

    def close(self, ended: Ended) -> None:
        """Tell how it ended, if the store takes it in time."""
        self._ended = ended
        self._closing.set()
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        self._clear()
        while True:
            last = self._closing.is_set()
            self._tell()
            if last:
                return
            self._closing.wait(EVERY_S)

    def _tell(self) -> None:
        state = self._state
        if state is None:
            return
        status = SweepStatus(
            sweep=self._sweep,
            job=self._job,
            driver=self._driver,
            begun_at=self._begun_at,
            beat_at=datetime.now(UTC),
            ended=self._ended,
            state=state,
            workers=self._roster.workers,
        )
        with suppress(StoreError):  # the sweep itself finds out whether its results can be written
            self._store.statuses.put(self._sweep, status.to_json())

    def _clear(self) -> None:
        """Remove records of sweeps that ran long ago."""
        with suppress(StoreError):
            ended = [sweep for sweep, record in self._store.statuses.all().items() if not _is_running(record)]
            for sweep in ended[:-KEPT]:
                self._store.statuses.remove(sweep)


def _is_running(record: bytes) -> bool:
    try:
        return read_status(record).liveness() is Liveness.RUNNING
    except ValueError:
        return False
