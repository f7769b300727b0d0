"""The fields of a frozen dataclass as pydantic types: what a job file may say for each.

Everything comes from the dataclass (type, default, documentation, bounds), so that a new operation needs no line here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tunefarm.jobfile.scalars import MAX_INT, SIZE_PATTERN, Scalar, parse_size, resolve_plain
from tunefarm.jobfile.wording import did_you_mean, listed, spell

EMPTY_LIST = "an empty list leaves nothing to tune; give at least one value"


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """One field of a dataclass."""

    name: str
    kind: Any
    """Its type: int, float, bool, str, a StrEnum, one of these or None, or a tuple of any number of these."""
    doc: str
    default: Any
    """`dataclasses.MISSING` where it has none."""
    low: int | None
    high: int | None

    @property
    def required(self) -> bool:
        """Whether a problem can't be made without it."""
        return self.default is dataclasses.MISSING

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values of an enumeration, or of which a tuple holds any; None for any other type."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind
        return tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else None


def fields_of(record: type) -> dict[str, FieldInfo]:
    """The documented fields of a dataclass, in order. Undocumented ones are not for users to set."""
    kinds = get_type_hints(record)
    return {
        f.name: FieldInfo(
            name=f.name,
            kind=kinds[f.name],
            doc=f.metadata["doc"],
            default=f.default,
            low=f.metadata.get("low"),
            high=f.metadata.get("high"),
        )
        for f in dataclasses.fields(record)
        if "doc" in f.metadata
    }


def mistake(message: str) -> PydanticCustomError:
    """An error whose text is final."""
    return PydanticCustomError("mistake", "{message}", {"message": message})


def value_type(info: FieldInfo, choices: Sequence[str] | None = None) -> Any:
    """The type of one value of a field. `choices` are the words that a field of plain text is held to."""
    return _type_of(info.kind, info, choices or info.choices)


def as_list(value: Any) -> Any:
    """A lone value as a list of one: users needn't write brackets around it."""
    return value if isinstance(value, list) else [value]


def list_type(item: Any) -> Any:
    """A list of at least one, for which a lone value may stand."""
    return Annotated[
        list[item], Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=item | _some(item))
    ]


def zipped_type(item: Any) -> Any:
    """A list of at least one; a lone value is a mistake, since there is nothing to advance through."""
    return _some(item)


def _some(item: Any) -> Any:
    return Annotated[list[item], Field(min_length=1)]


def _type_of(kind: Any, info: FieldInfo, choices: Sequence[str] | None) -> Any:
    if get_origin(kind) in {Union, UnionType}:
        inner = [k for k in get_args(kind) if k is not NoneType]
        if len(inner) == 1:
            return _type_of(inner[0], info, choices) | None
    if get_origin(kind) is tuple:
        return _tuple_type(_type_of(get_args(kind)[0], info, choices), choices)
    bounds = Field(ge=info.low, le=info.high)
    read: Callable[[Any], Any]
    written: Any
    if choices is not None:
        names = tuple(str(c) for c in choices)
        read, written = _reader_of_choice(names), Annotated[str, Field(json_schema_extra={"enum": list(names)})]
    elif kind is bool:
        read, written = _read_flag, bool
    elif kind is int:
        size = Annotated[str, Field(pattern=SIZE_PATTERN)]
        read, written = _read_whole, Annotated[int, bounds] | size
    elif kind is float:
        read, written = _read_number, Annotated[float, bounds]
    elif kind is str:
        return text_type()
    else:
        raise TypeError(f"{info.name}: a job file has no way to write a {kind}")
    return Annotated[kind, bounds, BeforeValidator(read, json_schema_input_type=written)]


def is_text(value: str, longest: int = 100) -> bool:
    """Whether it is some text on one line, fit for names and paths in messages."""
    return 0 < len(value) <= longest and value.isprintable() and value == value.strip()


def text_type(longest: int = 100) -> Any:
    """Text on one line."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise mistake(f"expected text, got {spell(value)}" + ("; put it in quotes" if _is_scalar(value) else ""))
        if not is_text(value, longest):
            raise mistake(f"expected 1 to {longest} printable characters, with no space at either end")
        return value

    written = Annotated[str, Field(min_length=1, max_length=longest)]
    return Annotated[str, BeforeValidator(read, json_schema_input_type=written)]


def expression_type() -> Any:
    """Text of an expression, on any number of lines."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise mistake(
                f"expected an expression, got {spell(value)}" + ("; put it in quotes" if _is_scalar(value) else "")
            )
        return value

    return Annotated[str, BeforeValidator(read, json_schema_input_type=str)]


def _tuple_type(item: Any, choices: Sequence[str] | None) -> Any:
    """Several words in no order: the same set makes the same key, however it was written."""

    def read(value: Any) -> Any:
        values = as_list(value)
        if not values:
            raise mistake(EMPTY_LIST)
        if choices is None or not all(value in choices for value in values):
            return values
        return [choice for choice in choices if choice in values]

    return Annotated[tuple[item, ...], BeforeValidator(read, json_schema_input_type=item | _some(item))]


def _is_scalar(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, dict))


def _unquoted(text: str) -> Scalar:
    """What a text would be without the quotes that a file put around it."""
    try:
        return resolve_plain(text)
    except ValueError:
        return text


def _read_whole(value: Any) -> int:
    if isinstance(value, str):
        if isinstance(_unquoted(value), int | float):
            raise mistake(f"expected a whole number, got the quoted text {spell(value)}; remove the quotes")
        try:
            value = parse_size(value)
        except ValueError as error:
            raise mistake(f"{error}; got {spell(value)}") from None
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INT:
        raise mistake(f"expected a whole number, got {spell(value)}; write {int(value)}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise mistake(f"expected a whole number, got {spell(value)}")
    if abs(value) > MAX_INT:
        raise mistake(f"{value} needs over 64 bits")
    return value


def _read_number(value: Any) -> float:
    if isinstance(value, str) and isinstance(_unquoted(value), int | float):
        raise mistake(f"expected a number, got the quoted text {spell(value)}; remove the quotes")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise mistake(f"expected a number, got {spell(value)}")
    if not math.isfinite(value):
        raise mistake(f"expected a finite number, got {spell(value)}")
    return float(value)


def _read_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if isinstance(_unquoted(value), bool):
            raise mistake(f"expected true or false, got the quoted text {spell(value)}; remove the quotes")
        meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
        hint = meant.get(value.lower())
        raise mistake(f"expected true or false, got {spell(value)}" + (f"; write {hint}" if hint else ""))
    raise mistake(f"expected true or false, got {spell(value)}")


def _reader_of_choice(names: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in names:
            return value
        if value is None and "none" in names:
            raise mistake("expected a word, got nothing; write `none`")
        if isinstance(value, str):
            raise mistake(f"{spell(value)} is none of {listed(names)}{did_you_mean(value, names)}")
        raise mistake(f"expected one of {listed(names)}, got {spell(value)}")

    return read


def defaults_of(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The default of every field that has one."""
    return {name: info.default for name, info in fields.items() if not info.required}
