"""JSON from strangers: one reading for each text, every value's type and bounds checked, nothing ignored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_MAX_INTEGER = 2**63 - 1


class Malformed(ValueError):
    """A value that is not what it should be: its place in the document, and what is wrong."""

    def __init__(self, what: str, *places: str) -> None:
        self.what = what
        self.places = places
        super().__init__(f"{'.'.join(places)} {what}" if places else what)

    def under(self, place: str) -> Malformed:
        """The same fault as seen from the value that holds this one."""
        return Malformed(self.what, place, *self.places)


def parse(data: bytes) -> Any:
    """The value of a JSON text in UTF-8, in which no key comes twice and every number is finite.

    Raises:
        Malformed: it is none.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("is nested too deep") from None
    except ValueError as error:  # no UTF-8, no JSON, or an integer of thousands of digits
        raise Malformed(f"is no JSON in UTF-8 ({str(error)[:80]})") from None


def record(value: Any, names: frozenset[str]) -> dict[str, Any]:
    """An object that has exactly these keys. Raises Malformed."""
    if not isinstance(value, dict):
        raise Malformed("must be an object")
    if value.keys() != names:
        unknown, missing = sorted(value.keys() - names), sorted(names - value.keys())
        raise Malformed(f"has an unknown key {unknown[0][:40]!r}" if unknown else f"lacks the key {missing[0]!r}")
    return value


def items(value: Any, read: Callable[[Any], T], *, limit: int) -> tuple[T, ...]:
    """A list of at most `limit` values, each read alike. Raises Malformed."""
    if not isinstance(value, list):
        raise Malformed("must be a list")
    if len(value) > limit:
        raise Malformed(f"has {len(value)} items, over the limit of {limit}")
    read_items = []
    for place, item in enumerate(value):
        try:
            read_items.append(read(item))
        except Malformed as fault:
            raise fault.under(str(place)) from None
    return tuple(read_items)


def text(value: Any, *, limit: int = 512) -> str:
    """A text of at most `limit` characters. Raises Malformed."""
    if not isinstance(value, str):
        raise Malformed("must be text")
    if len(value) > limit:
        raise Malformed(f"has {len(value)} characters, over the limit of {limit}")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise Malformed("holds half a character")
    return value


def integer(value: Any, *, low: int = 0, high: int = _MAX_INTEGER) -> int:
    """A whole number within bounds, inclusive. Raises Malformed."""
    if type(value) is not int:  # a bool is an int to isinstance
        raise Malformed("must be a whole number")
    if not low <= value <= high:
        raise Malformed(f"must be from {low} to {high}")
    return value


def boolean(value: Any) -> bool:
    """True or false. Raises Malformed."""
    if not isinstance(value, bool):
        raise Malformed("must be true or false")
    return value


def number(value: Any) -> float:
    """A finite number from 0. Raises Malformed."""
    if type(value) is not float and type(value) is not int:
        raise Malformed("must be a number")
    if not 0 <= value <= _MAX_INTEGER:
        raise Malformed("must be a number from 0")
    return float(value)


def optional(value: Any, read: Callable[[Any], T]) -> T | None:
    """A value that may be null. Raises Malformed."""
    return None if value is None else read(value)


def read_fields(value: Any, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """An object of exactly these keys, each value read its own way.

    Raises:
        Malformed: names the first field that is wrong.
    """
    held = record(value, frozenset(readers))
    fields = {}
    for name, read in readers.items():
        try:
            fields[name] = read(held[name])
        except Malformed as fault:
            raise fault.under(name) from None
    return fields


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"has the key {twice[:40]!r} twice")
    return held


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Malformed(f"holds a number out of range: {digits[:40]}")
    return value


def _refuse_constant(name: str) -> Any:
    raise Malformed(f"holds {name}, which is no JSON")
