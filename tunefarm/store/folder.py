"""Where a store's files are, and the one way that they get there: whole, and to stay."""

from __future__ import annotations

import errno
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow.fs as pa_fs

from tunefarm.model.errors import StoreError, StoreUnreachable
from tunefarm.model.places import public
from tunefarm.store.format import FORMAT, FORMAT_FILE, FORMAT_TEXT, format_of

SET_ASIDE = "damaged"
"""The folder that damaged files are moved to."""
_PROBE = "tmp/probe"

_MENDS = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EFBIG: "raise the limit on file sizes",
    errno.EACCES: "make the folder writable, or name another store",
    errno.EPERM: "make the folder writable, or name another store",
    errno.EROFS: "mount it writable, or name another store",
}


class Stamp(NamedTuple):
    """What a file that was changed is known by: one of equal stamp need not be read again."""

    size: int
    changed_ns: int
    number: int
    """The file's own number on its disk; 0 in an object store."""


class Folder(ABC):
    """A store's folder, on a disk or in an object store. Any number of processes may publish into it with no lock.

    Names of files are relative to it, with `/`.
    """

    def __init__(self, shown: str, system: pa_fs.FileSystem, base: str) -> None:
        """`shown` for people; `base` in the file system."""
        self.shown = shown
        self.system = system
        self._base = base

    def place(self, name: str) -> str:
        """Where a file is, for people."""
        return f"{self.shown}/{name}"

    def address(self, name: str) -> str:
        """Where a file is in `system`."""
        return f"{self._base}/{name}"

    def publish(self, name: str, data: bytes) -> None:
        """Make a file appear with its whole content, to stay after a power loss once this returns.

        Raises:
            StoreUnreachable: the store does not answer.
            StoreError: it can't be written, or can't be made to stay. If it has appeared all the same, then whole. Or
                the store is gone: nothing is made where it was, or its later trials would lie apart from the others.
                Or a newer tunefarm has written it meanwhile.
        """
        if self._format(name) < FORMAT:
            self._put_or_tell(FORMAT_FILE, FORMAT_TEXT)
        self._put_or_tell(name, data)

    def found(self) -> None:
        """Make the folder, and the file that makes it a store. Raises StoreError."""
        self._put_or_tell(FORMAT_FILE, FORMAT_TEXT, above=True)

    def probe(self) -> None:
        """See that the store can be written. Raises StoreError if not."""
        self._format(_PROBE)
        self._put_or_tell(_PROBE, b"")
        with suppress(OSError):  # another probed too
            self.remove([_PROBE])

    def set_aside(self, name: str) -> None:
        """Move a file to where no reader looks. Raises StoreError."""
        try:
            self._move(name, f"{SET_ASIDE}/{name}")
        except FileNotFoundError:  # another did
            return
        except OSError as error:
            raise self._cant("move", name, error) from error

    def names(self, folder: str, suffix: str) -> list[str]:
        """The names in one folder that end so, sorted; none where there is no such folder. Raises StoreError."""
        return sorted(self.stamps(folder, suffix))

    def digest(self, name: str) -> str:
        """SHA-256 of a file's content, as hex. Raises OSError."""
        with self.system.open_input_stream(self.address(name)) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def is_there(self) -> bool:
        """Whether anything is at its place, as far as can be told."""
        return self.has("")

    def has(self, name: str) -> bool:
        """Whether a file is there, as far as can be told."""
        try:
            return bool(self.system.get_file_info(self.address(name)).type != pa_fs.FileType.NotFound)
        except (OSError, UnicodeEncodeError):
            return True

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A file's content. Raises OSError."""

    @abstractmethod
    def stamps(self, folder: str, suffix: str) -> dict[str, Stamp]:
        """The files of one folder that end so, and their stamps; none where there is no such folder.

        Raises:
            StoreError: the folder can't be listed.
        """

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None:
        """Remove files of one folder, to stay away after a power loss; some may be gone already. Raises OSError."""

    @abstractmethod
    def _move(self, name: str, to: str) -> None:
        """Give a file another name, in a folder that is made if need be. Raises OSError."""

    @abstractmethod
    def _put(self, name: str, data: bytes, *, above: bool) -> None:
        """Publish. `above`: also make the store's own folder, and those above it. Raises OSError."""

    @abstractmethod
    def _may_be_back(self, error: OSError) -> bool:
        """Whether the same call may succeed in a while."""

    def _format(self, name: str) -> int:
        """The store's format, before a file is written."""
        try:
            text = self.read(FORMAT_FILE)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"can't write {self.place(name)}: the store {self.shown} is gone (it has no {FORMAT_FILE} any more);"
                " put it back where it was, or name another store"
            ) from None
        except OSError as error:
            raise self._cant("write", name, error) from error
        return format_of(text, self.shown)

    def _put_or_tell(self, name: str, data: bytes, *, above: bool = False) -> None:
        try:
            self._put(name, data, above=above)
        except OSError as error:
            raise self._cant("write", name, error) from error

    def _cant(self, verb: str, name: str, error: OSError) -> StoreError:
        kind = StoreUnreachable if self._may_be_back(error) else StoreError
        mend = _MENDS.get(error.errno or 0, f"check {self._hint}")
        return kind(f"can't {verb} {self.place(name)}: {said(error)}; {mend}")

    @property
    @abstractmethod
    def _hint(self) -> str:
        """What to look at where nothing better is known."""


def said(error: OSError) -> str:
    """What an error says, in one line, without secrets."""
    return public(error.strerror or next(iter(str(error).splitlines()), type(error).__name__))
