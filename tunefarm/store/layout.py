"""Finding a store: in a folder or in an object store, its format checked, and nothing in the way of a new one."""

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from tunefarm.model.errors import StoreError
from tunefarm.model.places import is_uri
from tunefarm.store.disk import DiskFolder
from tunefarm.store.folder import Folder, said
from tunefarm.store.format import FORMAT_FILE, format_of
from tunefarm.store.objects import ObjectFolder

_MADE_BEFORE_FORMAT = {"meta", "tmp"}
"""What the maker of a store may have made already when another, or its own restart, comes by."""


def open_folder(place: str | os.PathLike[str], *, create: bool) -> Folder:
    """The folder of a store, its format checked.

    Args:
        place: a path, or a URI such as `s3://bucket/path`.
        create: make it if there is none, and see that it can be written.

    Raises:
        StoreError: it is no store, of a newer format, or can't be read; with `create`, can't be written either.
    """
    folder = folder_at(place)
    try:
        text = folder.read(FORMAT_FILE)
    except FileNotFoundError:
        if not create:
            raise StoreError(
                f"{folder.shown} is no tunefarm store: it has no {FORMAT_FILE}; check the path, or run a sweep into it"
            ) from None
        _make(folder)
        return folder
    except NotADirectoryError:
        raise StoreError(f"{folder.shown} is no folder; name a store's folder, or a new one") from None
    except OSError as error:
        raise StoreError(f"can't read {folder.place(FORMAT_FILE)}: {said(error)}; make the store readable") from error
    format_of(text, folder.shown)
    if create:
        folder.probe()
    return folder


def folder_at(place: str | os.PathLike[str]) -> Folder:
    """The folder of a path or URI, whatever is there. Raises StoreError if the place is none."""
    place = os.fspath(place)
    if not is_uri(place):
        return DiskFolder(Path(place))
    if place.startswith("file://"):
        return DiskFolder(Path(unquote(urlparse(place).path)))
    return ObjectFolder(place)


def _make(folder: Folder) -> None:
    strangers = sorted({name for name in folder.names("", "") if name not in _MADE_BEFORE_FORMAT})
    if strangers:
        raise StoreError(
            f"{folder.shown} is no tunefarm store (no {FORMAT_FILE}) and holds {strangers[0]!r};"
            " name an empty or new folder, or restore the store's meta folder"
        )
    folder.found()
