"""What was handed to workers and did not come back: kept on disk, so that work that kills the driver is known again."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tunefarm.model.errors import FarmError
from tunefarm.model.trial import Stage

ALONE_AFTER = 2
"""Starts without an end after which work goes last and alone."""
MAX_STARTS = 3
"""Starts without an end after which work is given up; the last of them was alone."""
LARGE = 1 << 20
"""Bytes from which a journal is written anew, with only what is open."""

Start = tuple[Stage, str]
"""A stage and a trial key."""


class StartJournal:
    """Starts without an end, of this driver and of those that died before it.

    Each driver has a file of its own and holds its lock, so that the work of one that lives is not taken for lost.
    """

    def __init__(self, folder: Path) -> None:
        """Take over the journals of drivers that died.

        Raises:
            FarmError: the folder can't be written.
        """
        self._folder = folder
        self._counts: Counter[Start] = Counter()
        self._open: Counter[Start] = Counter()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            dead = [(path, file) for path in sorted(folder.glob("*.jsonl")) if (file := _locked(path)) is not None]
            for path, file in dead:
                self._read(path, file.read())
            self._path, self._file = self._fresh()
            for path, file in dead:
                path.unlink(missing_ok=True)
                file.close()
        except OSError as error:
            raise FarmError(f"{folder}: the start journal can't be written: {error.strerror}") from error

    def starts(self, start: Start) -> int:
        """How often work was started by drivers that died before it ended."""
        return self._counts[start]

    def suspects(self) -> set[str]:
        """Trial keys of work that was started so often without an end that it should be met alone."""
        return {key for (_, key), count in self._counts.items() if count >= ALONE_AFTER}

    def begin(self, starts: Iterable[Start]) -> None:
        """Write that work is about to start; it is on the disk when this returns.

        Raises:
            FarmError: it can't be written.
        """
        starts = list(starts)
        self._open.update(starts)
        try:
            self._file.write(_line("begin", starts))
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise FarmError(f"{self._path}: the start journal can't be written: {error.strerror}") from error

    def end(self, starts: Iterable[Start]) -> None:
        """Write that the driver outlived work. Not awaited: a lost line counts one start too many, and no row less.

        Raises:
            FarmError: it can't be written.
        """
        starts = list(starts)
        for start in starts:
            self._open.pop(start, None)
            self._counts.pop(start, None)
        try:
            self._file.write(_line("end", starts))
            if self._file.tell() > LARGE:
                old, file = self._path, self._file
                self._path, self._file = self._fresh()
                old.unlink(missing_ok=True)
                file.close()
        except OSError as error:
            raise FarmError(f"{self._path}: the start journal can't be written: {error.strerror}") from error

    def forget(self, key: str) -> None:
        """Count no start of a trial any more: it has a row.

        Raises:
            FarmError: it can't be written.
        """
        self.end([start for start in self._counts if start[1] == key])

    def close(self) -> None:
        """End in order: what is open was called off, and counts no start."""
        self._open.clear()
        old, file = self._path, self._file
        try:
            if self._counts:
                self._file = self._fresh()[1]
                self._file.close()
            old.unlink(missing_ok=True)
        except OSError:
            logging.getLogger(__name__).warning("%s: left behind", old)
        file.close()

    def _fresh(self) -> tuple[Path, BinaryIO]:
        """A new file that holds all counts. It gets its name when it is whole and locked."""
        path = self._folder / f"{secrets.token_hex(8)}.jsonl"
        hidden = path.with_suffix(".new")
        file = hidden.open("ab", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        for start, count in (self._counts + self._open).items():
            file.write(_line("begin", [start] * count))
        os.fsync(file.fileno())
        hidden.rename(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return path, file

    def _read(self, path: Path, content: bytes) -> None:
        ignored = 0
        for line in content.splitlines():
            try:
                entry = json.loads(line)
                starts = [(Stage(stage), str(key)) for stage, key in entry["starts"]]
                what = entry["what"]
            except (ValueError, TypeError, KeyError, RecursionError):
                ignored += 1
                continue
            if what == "begin":
                self._counts.update(starts)
            elif what == "end":
                for start in starts:
                    self._counts.pop(start, None)
        if ignored:
            logging.getLogger(__name__).warning("%s: %d lines of the start journal can't be read", path, ignored)


def _line(what: str, starts: list[Start]) -> bytes:
    return json.dumps({"what": what, "starts": starts}).encode() + b"\n"


def _locked(path: Path) -> BinaryIO | None:
    """The file, locked; None if its driver lives, or another took it over."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not path.exists():
        file.close()
        return None
    return file
