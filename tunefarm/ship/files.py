"""Files that appear whole or not at all, and stay after a power loss."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tunefarm.model.errors import UsageError


def publish(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file elsewhere in its folder, then let it take its name, replacing what had it.

    Raises:
        UsageError: it can't be written.
    """
    with draft_of(path) as draft:
        write_draft(draft, chunks)
        activate(draft, path)


def write_draft(draft: Path, chunks: Iterable[bytes]) -> None:
    """Write a new file whose content is on the disk when this returns. Raises OSError."""
    with draft.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def point(link: Path, name: str) -> None:
    """Make a symbolic link lead to `name`, at once for every reader. Raises UsageError."""
    with draft_of(link) as draft:
        draft.symlink_to(name)
        activate(draft, link)


def activate(draft: Path, path: Path) -> None:
    """Give a whole draft its name, to stay. Raises OSError."""
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A name for a file in the making, in the folder of the one that it becomes; left over, it is removed.

    Raises:
        UsageError: something in the block can't be written.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        yield draft
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # the rename took it, or it was never made
            draft.unlink()
