"""Parts: immutable files that appear whole or not at all, each with a proof of what it should hold.

This module alone knows where a store's files are and how they get there.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tunefarm.model.errors import StoreError
from tunefarm.store.plain_json import load_object

SUFFIX = ".parquet"
FORMAT_FILE = "meta/format.json"
"""What makes a folder a store: written first, and once."""
_PROBE = "tmp/probe"

_MENDS = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EFBIG: "raise the limit on file sizes",
    errno.EACCES: "make the folder writable, or name another store",
    errno.EPERM: "make the folder writable, or name another store",
    errno.EROFS: "mount it writable, or name another store",
}


@dataclass(frozen=True, order=True)
class Damage:
    """One file of a store that can't be trusted, and was left out of every result."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Folder:
    """A store's folder. Any number of processes may publish into it at once, with no lock.

    Drafts are written in `tmp`, since no hidden name is skipped by every tool that reads a folder of Parquet. A writer
    that is killed leaves its draft there, where nobody reads it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def path(self, name: str) -> Path:
        """Where a file of the store is; `name` is relative, with `/`."""
        return self.root / name

    def publish(self, name: str, data: bytes) -> None:
        """Make a file appear with its whole content, to stay after a power loss once this returns.

        Raises:
            StoreError: it can't be written, or can't be made to stay. If it has appeared all the same, then whole. Or
                the store is gone: nothing is made where it was, or its later trials would lie apart from the others.
        """
        try:
            gone = not self.path(FORMAT_FILE).is_file()
        except OSError as error:
            raise self._cant_write(self.path(name), error) from error
        if gone:
            raise StoreError(
                f"can't write {self.path(name)}: the store {self.root} is gone (it has no {FORMAT_FILE} any more);"
                " put it back where it was, or name another store"
            )
        self._publish(name, data, above=False)

    def found(self, data: bytes) -> None:
        """Make the folder, and the file that makes it a store. Raises StoreError."""
        self._publish(FORMAT_FILE, data, above=True)

    def probe(self) -> None:
        """See that the store can be written. Raises StoreError if not."""
        self.publish(_PROBE, b"")
        with suppress(OSError):  # another probed too
            self.path(_PROBE).unlink()

    def _publish(self, name: str, data: bytes, *, above: bool) -> None:
        """`above`: also make the store's own folder, and those above it."""
        path = self.path(name)
        draft = self.path(f"tmp/{secrets.token_hex(8)}")
        try:
            for folder in (path.parent, draft.parent):
                self._make_folder(folder, above=above)
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(path)
                _sync_folder(path.parent)
            finally:
                with suppress(OSError):  # the rename took it, or it was never made
                    draft.unlink()
        except OSError as error:
            raise self._cant_write(path, error) from error

    def _cant_write(self, path: Path, error: OSError) -> StoreError:
        mend = _MENDS.get(error.errno or 0, "check the file system that the store is on")
        return StoreError(f"can't write {path}: {error.strerror or error}; {mend}")

    def read(self, name: str) -> bytes:
        """A file's content. Raises OSError."""
        return self.path(name).read_bytes()

    def remove(self, name: str) -> None:
        """Delete a file that nobody misses, if it can be deleted."""
        with suppress(OSError):
            self.path(name).unlink()

    def names(self, folder: str, suffix: str) -> list[str]:
        """The names in one folder that end so, sorted; none where there is no such folder.

        Raises:
            StoreError: the folder can't be listed.
        """
        try:
            return sorted(path.name for path in self.path(folder).iterdir() if path.name.endswith(suffix))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"can't list {self.path(folder)}: {error.strerror}; make it a folder that you may read"
            ) from error

    def _make_folder(self, folder: Path, *, above: bool) -> None:
        if folder.is_dir():
            return
        if above or folder.parent != self.root:  # else whether the store's own folder is there, the next line tells
            self._make_folder(folder.parent, above=above)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def new_part_name() -> str:
    """A name that no other writer takes: UTC time (so names sort by it), host, 64 random bits."""
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:32] or "host"
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{host}-{secrets.token_hex(8)}"


class Parts:
    """The parts of one table, in `TABLE/v1`; the proof of each (size, SHA-256, rows) in `meta/TABLE/v1`.

    A proof is published before its part: a proof without a part is the trace of a writer that died, and harmless; a
    part without a proof was not put there by a writer, or its proof was lost, and can't be trusted.
    """

    def __init__(self, folder: Folder, table: str, objection: Callable[[Path], str | None]) -> None:
        """`objection` says what the table itself has against a part whose digest is right, or None."""
        self._folder = folder
        self._table = f"{table}/v1"
        self._objection = objection
        self._proven: set[str] = set()
        self._damage: dict[str, Damage] = {}

    def publish(self, name: str, data: bytes, rows: int) -> None:
        """Add a part under a `new_part_name`. Raises StoreError."""
        proof = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "rows": rows}
        self._folder.publish(f"meta/{self._table}/{name}.json", json.dumps(proof).encode())
        self._folder.publish(f"{self._table}/{name}{SUFFIX}", data)

    def sound(self) -> tuple[Path, ...]:
        """Every part that holds what its proof says, oldest first. A part is read through once, then trusted."""
        listed = self._folder.names(self._table, SUFFIX)
        self._damage = {}
        for name in listed:
            if name in self._proven:
                continue
            path = self._folder.path(f"{self._table}/{name}")
            what = self._fault(name.removesuffix(SUFFIX), path) or self._objection(path)
            if what is None:
                self._proven.add(name)
            elif path.exists():  # else it went away under the reader's eyes
                self._damage[name] = Damage(str(path), what)
        return tuple(self._folder.path(f"{self._table}/{name}") for name in listed if name in self._proven)

    def recheck(self) -> bool:
        """Forget which parts were proven and look again; whether the sound ones are others now."""
        before, self._proven = self._proven, set()
        self.sound()
        return before != self._proven

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What the latest look set aside."""
        return tuple(self._damage.values())

    def _fault(self, name: str, path: Path) -> str | None:
        proof_name = f"meta/{self._table}/{name}.json"
        try:
            proof = load_object(self._folder.read(proof_name))
            size, digest = proof["size"], proof["sha256"]
        except FileNotFoundError:
            return f"unproven: it has no {proof_name}"
        except (OSError, ValueError, KeyError) as error:
            return f"unproven: {proof_name} can't be read ({error})"
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno()).st_size
                if found != size:
                    return f"it holds {found} bytes and was published with {size}"
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return "its content is not what was published (SHA-256 differs)"
        except OSError as error:
            return f"it can't be read ({error.strerror})"
        return None
