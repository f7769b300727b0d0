"""Bundles to and from local paths and object stores, as bytes: nothing here decides whom to trust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunefarm.model.errors import UsageError
from tunefarm.model.places import is_uri, public
from tunefarm.ship.files import publish

MAX_BUNDLE = 2**33
"""Bytes of a bundle that are fetched at most: 8 GiB."""
_CHUNK = 2**20


def put(path: Path, place: str) -> None:
    """Copy a file to a place: a local path, or a URI such as `s3://bucket/plans/prod.bundle`.

    Locally it appears whole or not at all; an object store shows an object when it was uploaded.

    Raises:
        UsageError: no such place, or it can't be written.
    """
    with _told(f"can't write {public(place)}"):
        system, name = _resolve(place)
        if system is None:
            with path.open("rb") as file:
                publish(Path(name), iter(lambda: file.read(_CHUNK), b""))
            return
        data = path.read_bytes()  # an upload that an exception passes would publish a part: nothing may fail within
        with system.open_output_stream(name) as stream:
            stream.write(data)


def chunks_of(place: str) -> Iterator[bytes]:
    """The content of a file at a local path or URI, piece by piece.

    Raises:
        UsageError: there is no such file, it can't be read, or it is larger than any bundle.
    """
    fetched = 0
    with _told(f"can't read {public(place)}"):
        system, name = _resolve(place)
        with Path(name).open("rb") if system is None else system.open_input_stream(name) as stream:
            while chunk := stream.read(_CHUNK):
                fetched += len(chunk)
                if fetched > MAX_BUNDLE:
                    raise UsageError(f"{public(place)} is larger than any bundle ({MAX_BUNDLE} bytes)")
                yield chunk


def _resolve(place: str) -> tuple[Any, str]:
    """The file system of a place, None for this machine's own, and the file's name there."""
    if not is_uri(place):
        return None, place
    from pyarrow import fs  # starts threads, and local paths need none of it

    system, name = fs.FileSystem.from_uri(place)
    return None if isinstance(system, fs.LocalFileSystem) else system, name


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what file systems raise into one message. pyarrow's errors are among these kinds."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{what}: there is no such file or folder") from None
    except (OSError, ValueError, NotImplementedError) as error:
        text = public(next(iter(str(error).splitlines()), type(error).__name__))
        raise UsageError(f"{what}: {text}") from None
