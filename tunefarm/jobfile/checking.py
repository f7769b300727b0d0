"""Validating values of a document, and saying what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tunefarm.jobfile.fields import EMPTY_LIST
from tunefarm.jobfile.mistakes import MistakeLog
from tunefarm.jobfile.schema import MEASURE_FIELDS, SEARCH_FIELDS
from tunefarm.jobfile.wording import closest, listed, spell
from tunefarm.jobfile.yaml_source import Document, Loc


def check(model: type[BaseModel], document: Document, loc: Loc, value: Any, log: MistakeLog) -> BaseModel | None:
    """Validate a value of a document; None if it has mistakes, which are then in the log."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            place = (*loc, *details["loc"])
            if log.full or document.trim(place) in document.unread:
                continue
            unknown = details["type"] == "extra_forbidden"
            log.add(document, place, _unknown_key(model, details) if unknown else _message(details), at_key=unknown)
        return None


def settings(model: BaseModel | None) -> dict[str, Any]:
    """The fields that a `search:` or `measure:` sets, without those that it leaves alone."""
    return {name: getattr(model, name) for name in model.model_fields_set} if model else {}


def _message(details: ErrorDetails) -> str:
    value, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "too_short":
            text = EMPTY_LIST
        case "greater_than_equal":
            text = f"{value} is below {context['ge']}, the least allowed"
        case "less_than_equal":
            text = f"{value} is above {context['le']}, the most allowed"
        case "list_type":
            text = f"expected a list, got {spell(value)}"
        case "model_type":
            text = f"expected a mapping (`key: value`), got {spell(value)}"
        case _:
            text = details["msg"]
    return text


def _unknown_key(model: type[BaseModel], details: ErrorDetails) -> str:
    *parents, key = details["loc"]
    word = str(key)
    parent = next((str(p) for p in reversed(parents) if isinstance(p, str)), "")
    for home, fields in (("search", SEARCH_FIELDS), ("measure", MEASURE_FIELDS)):
        if word in fields and parent != home:
            return f"unknown key here; it belongs under `{home}:`"
    known = list(_keys_at(model, parents))
    if near := closest(word, known):
        return f"unknown key; did you mean {' or '.join(f'`{n}`' for n in near)}?"
    return f"unknown key; there are {listed(known)}"


def _keys_at(model: type[BaseModel], loc: list[int | str]) -> Iterator[str]:
    """The keys that are allowed in the mapping at `loc`."""
    for step in loc:
        if isinstance(step, str):
            annotation = model.model_fields[step].annotation
            inner = getattr(annotation, "__args__", (annotation,))[0]
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                model = inner
    yield from model.model_fields
