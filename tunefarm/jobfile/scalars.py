"""Scalars of a job file: YAML 1.2's core schema, and sizes such as `4k` or `256MiB`."""

import re
from typing import Self

Scalar = str | int | float | bool | None

MAX_INT = 2**63 - 1
"""Sizes beyond it fit no tensor, no Parquet column and no expression."""

_MAX_NUMBER_CHARACTERS = 64
"""Python refuses to read integers of over 4,300 digits with an error of its own; nobody means one of 65."""

_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

UNITS = {"k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""What a size may end in. All are powers of 1024, as shapes and memory are."""

SIZE_PATTERN = rf"^[0-9]{{1,12}}({'|'.join(UNITS)})$"
_SIZE = re.compile(rf"([0-9]{{1,12}})({'|'.join(UNITS)})")
_WITH_UNKNOWN_UNIT = re.compile(r"[0-9]{1,12} ?([A-Za-z]{1,8})")


class WrittenFloat(float):
    """A number that messages can show as the file has it, such as `1e3`."""

    _text: str

    def __new__(cls, text: str) -> Self:
        """The number of a text of YAML's core schema."""
        number = super().__new__(cls, text.replace(".", "", 1) if _SPECIAL_FLOAT.fullmatch(text) else text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted YAML scalar by YAML 1.2's core schema: `no`, `on` and `1:30` stay text.

    Raises:
        ValueError: a number of absurd length.
    """
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _SPECIAL_FLOAT.fullmatch(text):
        return WrittenFloat(text)
    for pattern, read in (
        (_DECIMAL, int),
        (_OCTAL, lambda digits: int(digits, 8)),
        (_HEXADECIMAL, lambda digits: int(digits, 16)),
        (_FLOAT, WrittenFloat),
    ):
        if pattern.fullmatch(text):
            if len(text) > _MAX_NUMBER_CHARACTERS:
                raise ValueError(f"a number of {len(text):,} characters; sizes have at most 19 digits")
            value: Scalar = read(text)
            return value
    return text


def parse_size(text: str) -> int:
    """The number that a size such as `4k` stands for.

    Raises:
        ValueError: it is none; the text says how sizes are written.
    """
    if size := _SIZE.fullmatch(text):
        return int(size.group(1)) * UNITS[size.group(2)]
    if unknown := _WITH_UNKNOWN_UNIT.fullmatch(text):
        unit = unknown.group(1)
        if len(set(unit.lower())) == 1 < len(unit):  # `kk`
            meant = [u for u in UNITS if u.lower() == unit[0].lower()][:1]
        else:
            meant = [u for u in UNITS if u.lower() == unit.lower() or u.lower() == f"{unit[0]}ib".lower()]
        hint = f"; did you mean `{text.removesuffix(unit).rstrip()}{meant[-1]}`?" if meant else ""
        raise ValueError(f"a size ends in {', '.join(UNITS)} or in a digit, not in `{unit}`{hint}")
    raise ValueError("expected a whole number, such as 4096 or 4k")
