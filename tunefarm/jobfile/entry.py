"""One entry of `ops:`: its axes, its conditions and its settings, checked but not yet multiplied out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tunefarm.jobfile.checking import check, settings
from tunefarm.jobfile.fields import FieldInfo, as_list
from tunefarm.jobfile.mistakes import MAX_MISTAKES, MistakeLog
from tunefarm.jobfile.schema import Grammar
from tunefarm.jobfile.where import MAX_CHARACTERS, Condition, ConditionError
from tunefarm.jobfile.wording import closest, did_you_mean, listed, spell
from tunefarm.jobfile.yaml_source import Document, Loc
from tunefarm.model.problem import Problem


@dataclass(frozen=True)
class Choice:
    """One value of one field, and where the file says it."""

    field: str
    value: Any
    loc: Loc


Axis = tuple[tuple[Choice, ...], ...]
"""Steps that exclude each other. A step sets one field, or all fields of a zip."""


@dataclass(frozen=True)
class Entry:
    """A checked entry."""

    document: Document
    loc: Loc
    problem_type: type[Problem]
    fields: Mapping[str, FieldInfo]
    name: str | None
    weight: int
    axes: tuple[Axis, ...]
    """In file order: the last one varies fastest."""
    conditions: tuple[tuple[Condition, Loc], ...]
    search: Mapping[str, Any]
    """The search settings that it sets over the job's."""
    measure: Mapping[str, Any]

    @property
    def combinations(self) -> int:
        """How many combinations its axes have, before conditions."""
        return math.prod(len(axis) for axis in self.axes)


def read_entry(document: Document, loc: Loc, value: Any, grammar: Grammar, log: MistakeLog) -> Entry | None:
    """Check an entry; None if it has mistakes, which are then in the log."""
    before = len(log)
    op = _operation(document, loc, value, grammar, log)
    if op is None:
        return None
    fields = grammar.fields[op]
    model = check(grammar.entries[op], document, loc, value, log)
    _check_fields(document, loc, value, fields, log)
    conditions = tuple(_conditions(document, loc, value, fields, log))
    if model is None or len(log) > before:
        return None
    return Entry(
        document=document,
        loc=loc,
        problem_type=grammar.problem_types[op],
        fields=fields,
        name=_set(model, "name"),
        weight=_set(model, "weight") or 1,
        axes=tuple(_axes(model, loc, value)),
        conditions=conditions,
        search=settings(_set(model, "search")),
        measure=settings(_set(model, "measure")),
    )


def _set(model: BaseModel, name: str) -> Any:
    return getattr(model, name) if name in model.model_fields_set else None


def _operation(document: Document, loc: Loc, value: Any, grammar: Grammar, log: MistakeLog) -> str | None:
    operations = sorted(grammar.entries)
    if not isinstance(value, dict):
        log.add(document, loc, f"expected a mapping with `op:` and the operation's fields, got {spell(value)}")
        return None
    if "op" not in value:
        log.add(document, loc, f"`op` is missing: one of {listed(operations)}")
        return None
    op = value["op"]
    if not isinstance(op, str):
        log.add(document, (*loc, "op"), f"expected one of {listed(operations)}, got {spell(op)}")
        return None
    if op not in grammar.entries:
        message = f"no operation {spell(op)}; there are {listed(operations)}{did_you_mean(op, operations)}"
        log.add(document, (*loc, "op"), message)
        return None
    return op


def _zips(value: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for i, group in enumerate(as_list(value.get("zip", []))):
        if isinstance(group, dict):
            yield i, group


def _check_fields(
    document: Document, loc: Loc, value: Mapping[str, Any], fields: Mapping[str, FieldInfo], log: MistakeLog
) -> None:
    """What no single field shows: one that is missing, or given twice, or lists of a zip that don't match."""
    given: dict[str, Loc] = {name: (*loc, name) for name in value if name in fields}
    strange = [name for name in value if name not in fields]
    for i, group in _zips(value):
        place = (*loc, "zip", i)
        if not group:
            log.add(document, place, "an empty zip; name at least one field")
        strange += [name for name in group if name not in fields]
        for name in group:
            if name in given:
                line = document.locate(given[name], at_key=True)[0]
                message = f"`{name}` is given twice, first on line {line}: a field is in one list or one zip"
                log.add(document, (*place, name), message, at_key=True)
            elif name in fields:
                given[name] = (*place, name)
        lengths = {name: len(values) for name, values in group.items() if isinstance(values, list)}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"`{name}` has {n}" for name, n in lengths.items())
            log.add(document, place, f"lists of a zip advance together and must be of one length, but {counts}")
    misspelt = {near for word in strange[:MAX_MISTAKES] for near in closest(word, fields)}
    for name, info in fields.items():
        if info.required and name not in given and name not in misspelt:
            log.add(document, loc, f"`{name}` is missing ({info.doc})")


def _conditions(
    document: Document, loc: Loc, value: Mapping[str, Any], fields: Mapping[str, FieldInfo], log: MistakeLog
) -> Iterable[tuple[Condition, Loc]]:
    texts = [(i, text) for i, text in enumerate(as_list(value.get("where", []))) if isinstance(text, str)]
    texts = [(i, text) for i, text in texts if document.trim((*loc, "where", i)) not in document.unread]
    total = sum(len(text) for _, text in texts)
    if total > MAX_CHARACTERS:
        log.add(document, (*loc, "where"), f"{total:,} characters of conditions, over the limit of {MAX_CHARACTERS:,}")
        return
    for i, text in texts:
        place = (*loc, "where", i)
        try:
            yield Condition(text, fields), place
        except ConditionError as error:
            log.add(document, place, str(error))


def _axes(model: BaseModel, loc: Loc, value: Mapping[str, Any]) -> Iterator[Axis]:
    for key in value:
        if key == "zip":
            for i, group in enumerate(_set(model, "zip")):
                names = [name for name in type(group).model_fields if name in group.model_fields_set]
                columns = [_choices(group, name, (*loc, "zip", i)) for name in names]
                yield tuple(zip(*columns, strict=True))
        elif key not in {"op", "name", "weight", "where", "search", "measure"}:
            yield tuple((choice,) for choice in _choices(model, key, loc))


def _choices(model: BaseModel, field: str, loc: Loc) -> list[Choice]:
    return [Choice(field, value, (*loc, field, i)) for i, value in enumerate(getattr(model, field))]
