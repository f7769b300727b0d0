"""What makes a folder a store: `meta/format.json`, and nothing in the way."""

import json
from pathlib import Path

from tunefarm.model.errors import StoreError
from tunefarm.store.parts import FORMAT_FILE, Folder
from tunefarm.store.plain_json import load_object
from tunefarm.store.schema import FORMAT

_MADE_BEFORE_FORMAT = {"meta", "tmp"}
"""What the maker of a store may have made already when another, or its own restart, comes by."""


def open_folder(path: Path, *, create: bool) -> Folder:
    """The folder of a store, its format checked.

    Args:
        path: of the store.
        create: make it if there is none, and see that it can be written.

    Raises:
        StoreError: it is no store, of a newer format, or can't be read; with `create`, can't be written either.
    """
    folder = Folder(path)
    try:
        text = folder.read(FORMAT_FILE)
    except FileNotFoundError:
        if not create:
            raise StoreError(
                f"{path} is no tunefarm store: it has no {FORMAT_FILE}; check the path, or run a sweep into it"
            ) from None
        _make(folder)
        return folder
    except NotADirectoryError:
        raise StoreError(f"{path} is no folder; name a store's folder, or a new one") from None
    except OSError as error:
        raise StoreError(f"can't read {error.filename}: {error.strerror}; make the store readable") from error
    _check(folder, text)
    if create:
        folder.probe()
    return folder


def _make(folder: Folder) -> None:
    strangers = sorted({name for name in folder.names("", "") if name not in _MADE_BEFORE_FORMAT})
    if strangers:
        raise StoreError(
            f"{folder.root} is no tunefarm store (no {FORMAT_FILE}) and holds {strangers[0]!r};"
            " name an empty or new folder, or restore the store's meta folder"
        )
    folder.found(json.dumps({"format": FORMAT}).encode())


def _check(folder: Folder, text: bytes) -> None:
    place = folder.path(FORMAT_FILE)
    try:
        found = load_object(text)["format"]
    except (ValueError, KeyError) as error:
        raise StoreError(f"{place} is damaged ({error!r}); restore it from a copy of the store") from error
    if not isinstance(found, int) or found < 1:
        raise StoreError(f"{place} names format {found!r}, which there never was; restore it from a copy of the store")
    if found > FORMAT:
        raise StoreError(
            f"{folder.root} has format {found}, written by a newer tunefarm; this one knows {FORMAT}: upgrade tunefarm"
        )
