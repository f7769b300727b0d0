"""A store in an object store, such as S3."""

import posixpath
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.fs as pa_fs

from tunefarm.model.errors import StoreError
from tunefarm.model.places import public
from tunefarm.store.folder import Folder, Stamp
from tunefarm.store.format import FORMAT_FILE

_REFUSED = ("ACCESS_DENIED", "Forbidden", "403", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
"""In what a server says that will say so again."""


class ObjectFolder(Folder):
    """The objects under a prefix. Each is put at once and appears when it is whole; names of parts are never taken."""

    def __init__(self, uri: str) -> None:
        """`uri` as pyarrow takes it, such as `s3://bucket/folder?region=eu-west-1`. Raises StoreError if it can't."""
        try:
            system, base = pa_fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            text = public(next(iter(str(error).splitlines()), ""))
            raise StoreError(
                f"can't open a store at {public(uri)}: {text}; name a folder, or s3://bucket/path"
            ) from None
        if not base.strip("/"):
            raise StoreError(f"{public(uri)} names no bucket; name a folder, or s3://bucket/path")
        super().__init__(public(uri).partition("?")[0].rstrip("/"), system, base.rstrip("/"))

    def read(self, name: str) -> bytes:
        with self.system.open_input_stream(self.address(name)) as stream:
            return bytes(stream.read())

    def stamps(self, folder: str, suffix: str) -> dict[str, Stamp]:
        selector = pa_fs.FileSelector(self.address(folder) if folder else self._base, allow_not_found=True)
        try:
            found = self.system.get_file_info(selector)
        except OSError as error:
            raise self._cant("list", folder, error) from error
        return {
            posixpath.basename(info.path): Stamp(info.size or 0, info.mtime_ns or 0, 0)
            for info in found
            if info.path.endswith(suffix)
        }

    def is_there(self) -> bool:
        return self.has(FORMAT_FILE)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self.system.delete_file(self.address(name))

    def _move(self, name: str, to: str) -> None:
        self.system.move(self.address(name), self.address(to))

    def _put(self, name: str, data: bytes, *, above: bool) -> None:  # noqa: ARG002 - an object store has no folders
        # An upload that an exception passes would publish a part of it: nothing may fail within.
        with self.system.open_output_stream(self.address(name)) as stream:
            stream.write(data)

    def _may_be_back(self, error: OSError) -> bool:
        return not any(word in str(error) for word in _REFUSED)

    @property
    def _hint(self) -> str:
        return "the network, the credentials and the bucket's permissions"
