"""The version of a store's layout, in the file that makes a folder a store."""

import json

from tunefarm.model.errors import StoreError
from tunefarm.store.plain_json import load_object

FORMAT = 2
"""The version that this tunefarm writes. Older ones are read as they are, and become this one at the first write.

1: parts of exactly the columns of their day. 2: parts may lack later columns, and may replace others.
"""
FORMAT_FILE = "meta/format.json"
"""What makes a folder a store: written first."""
FORMAT_TEXT = json.dumps({"format": FORMAT}).encode()


def format_of(text: bytes, store: str) -> int:
    """The version that a format file's content names; `store` is where the store is, for people.

    Raises:
        StoreError: it names none, or one that this tunefarm does not know.
    """
    place = f"{store}/{FORMAT_FILE}"
    try:
        found = load_object(text)["format"]
    except (ValueError, KeyError) as error:
        raise StoreError(f"{place} is damaged ({error!r}); restore it from a copy of the store") from error
    if not isinstance(found, int) or found < 1:
        raise StoreError(f"{place} names format {found!r}, which there never was; restore it from a copy of the store")
    if found > FORMAT:
        raise StoreError(
            f"{store} has format {found}, written by a newer tunefarm; this one knows {FORMAT}: upgrade tunefarm"
        )
    return found
