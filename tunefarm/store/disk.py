"""A store in a folder of this machine, or of one that is mounted here."""

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pa_fs

from tunefarm.model.errors import StoreError
from tunefarm.store.folder import Folder, Stamp, said

_MAY_BE_BACK = {
    *(
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
    ),
    *(
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EREMOTEIO,
    ),
}
"""What a mount says whose server is away."""


class DiskFolder(Folder):
    """A folder. Files are written elsewhere, synced, renamed in, and their folder is synced.

    Drafts are written in `tmp`, since no hidden name is skipped by every tool that reads a folder of Parquet. A writer
    that is killed leaves its draft there, where nobody reads it.
    """

    def __init__(self, root: Path) -> None:
        """Raises StoreError if the path is no UTF-8, which Parquet's libraries can't open."""
        self.root = root.absolute()
        shown = str(self.root)
        try:
            shown.encode()
        except UnicodeEncodeError:
            raise StoreError(
                f"the path {os.fsencode(shown)!r} is not UTF-8, and no store can be there;"
                " rename the folder, or name it through a link"
            ) from None
        super().__init__(shown, pa_fs.LocalFileSystem(), shown)

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def stamps(self, folder: str, suffix: str) -> dict[str, Stamp]:
        found = {}
        try:
            with os.scandir(self._path(folder)) as entries:
                for entry in entries:
                    if entry.name.endswith(suffix):
                        with suppress(FileNotFoundError):  # it went away just now
                            stat = entry.stat()
                            found[entry.name] = Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ino)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                f"can't list {self.place(folder)}: {said(error)}; make it a folder that you may read"
            ) from error
        return found

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)
        for folder in {self._path(name).parent for name in names}:
            _sync_folder(folder)

    def _move(self, name: str, to: str) -> None:
        self._make_folder(self._path(to).parent, above=False)
        self._path(name).rename(self._path(to))
        _sync_folder(self._path(to).parent)
        _sync_folder(self._path(name).parent)

    def _put(self, name: str, data: bytes, *, above: bool) -> None:
        path = self._path(name)
        draft = self._path(f"tmp/{secrets.token_hex(8)}")
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

    def _may_be_back(self, error: OSError) -> bool:
        return error.errno in _MAY_BE_BACK

    @property
    def _hint(self) -> str:
        return "the file system that the store is on"

    def _path(self, name: str) -> Path:
        return self.root / name

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
