"""JSON that anybody may have written into a store."""

import json
from typing import Any


def load_object(text: str | bytes) -> dict[str, Any]:
    """The object that a JSON text holds. Raises ValueError if it holds none."""
    found = _load(text)
    if not isinstance(found, dict):
        raise ValueError(f"JSON of type {type(found).__name__}, not an object")  # noqa: TRY004 - bad text, not a bad call
    return found


def load_list(text: str | bytes) -> list[Any]:
    """The list that a JSON text holds. Raises ValueError if it holds none."""
    found = _load(text)
    if not isinstance(found, list):
        raise ValueError(f"JSON of type {type(found).__name__}, not a list")  # noqa: TRY004 - bad text, not a bad call
    return found


def _load(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except TypeError as error:  # a null in a column of text
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
