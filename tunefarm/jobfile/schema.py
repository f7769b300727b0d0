"""What a job file may hold, as pydantic models made from the dataclasses, and as a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import models_json_schema

from tunefarm.engines import ENGINE_NAMES
from tunefarm.jobfile.fields import (
    FieldInfo,
    as_list,
    expression_type,
    fields_of,
    list_type,
    text_type,
    value_type,
    zipped_type,
)
from tunefarm.model.job import Protocol, Search, Task
from tunefarm.model.problem import Problem
from tunefarm.ops import OPERATIONS

ProblemTypes = Mapping[str, type[Problem]]
"""Problem classes by the name that jobs use for their operation."""

PROBLEM_TYPES: ProblemTypes = {name: operation.problem_type for name, operation in OPERATIONS.items()}
"""The problems of every operation that tunefarm has."""

SEARCH_FIELDS = fields_of(Search)
MEASURE_FIELDS = fields_of(Protocol)
WEIGHT = fields_of(Task)["weight"]

MAX_PATH = 1000
"""Characters of an included file's path."""

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Grammar:
    """The models of a job file over some operations."""

    problem_types: ProblemTypes
    document: type[BaseModel]
    entries: Mapping[str, type[BaseModel]]
    """By operation."""
    fields: Mapping[str, Mapping[str, FieldInfo]]
    """The fields of each operation's problem, by operation and name."""

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema (draft 2020-12) of a job file."""
        models: list[tuple[type[BaseModel], Literal["validation"]]] = [
            (model, "validation") for model in (self.document, *self.entries.values())
        ]
        refs, schema = models_json_schema(models, title="tunefarm job file")
        definitions = schema["$defs"]
        root = definitions.pop(refs[self.document, "validation"]["$ref"].rpartition("/")[2])
        root["properties"]["ops"]["items"] = {"oneOf": [refs[m, "validation"] for m in self.entries.values()]}
        root["anyOf"] = [{"required": ["ops"]}, {"required": ["include"]}]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, **schema}


def grammar_of(problem_types: ProblemTypes) -> Grammar:
    """The grammar for these operations, made once: that takes tens of milliseconds."""
    return _grammar_of(tuple(problem_types.items()))


@cache
def _grammar_of(problem_types: tuple[tuple[str, type[Problem]], ...]) -> Grammar:
    fields = {op: fields_of(problem_type) for op, problem_type in problem_types}
    search = _settings_model("search", SEARCH_FIELDS, "which candidates problems get")
    measure = _settings_model("measure", MEASURE_FIELDS, "how candidates are verified and timed")
    return Grammar(
        problem_types=dict(problem_types),
        document=_document_model(search, measure),
        entries={op: _entry_model(op, fields[op], search, measure) for op in fields},
        fields=fields,
    )


def job_schema(problem_types: ProblemTypes = PROBLEM_TYPES) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a job file, for editors: completion, documentation and a first check."""
    return grammar_of(problem_types).json_schema()


def _settings_model(name: str, fields: Mapping[str, FieldInfo], doc: str) -> type[BaseModel]:
    members: dict[str, Any] = {
        f.name: (
            value_type(f, choices=ENGINE_NAMES if f.name == "engines" else None),
            Field(default=f.default, description=f.doc),
        )
        for f in fields.values()
    }
    return create_model(name, __config__=_STRICT, __doc__=doc, **members)


def _document_model(search: type[BaseModel], measure: type[BaseModel]) -> type[BaseModel]:
    path = text_type(longest=MAX_PATH)
    return create_model(
        "job",
        __config__=_STRICT,
        __doc__="A job: what to tune.",
        job=(text_type(), _unset("name of the job; the file's name without its ending if left out")),
        include=(
            list_type(path),
            _unset("other job files, relative to this one, whose ops come before this job's own"),
        ),
        ops=(Annotated[list[Any], Field(min_length=1)], _unset("operations to tune, one entry each")),
        search=(search, _unset("which candidates problems get")),
        measure=(measure, _unset("how candidates are verified and timed, and which may win")),
    )


def _entry_model(
    op: str, fields: Mapping[str, FieldInfo], search: type[BaseModel], measure: type[BaseModel]
) -> type[BaseModel]:
    values = {name: value_type(info) for name, info in fields.items()}
    lists: dict[str, Any] = {name: (list_type(values[name]), _axis(info)) for name, info in fields.items()}
    zipped: dict[str, Any] = {name: (zipped_type(values[name]), _unset(info.doc)) for name, info in fields.items()}
    zip_model = create_model(
        f"{op}_zip", __config__=_STRICT, __doc__=f"Fields of {op} that advance together.", **zipped
    )
    own: dict[str, Any] = {
        "op": (Literal[op], Field(description="the operation")),
        "name": (text_type(), _unset("name of these problems in tables and reports")),
        "weight": (value_type(WEIGHT), _unset(WEIGHT.doc)),
        "zip": (
            Annotated[
                list[zip_model],  # type: ignore[valid-type]  # a model made at run time
                Field(min_length=1),
                BeforeValidator(as_list, json_schema_input_type=zip_model | list[zip_model]),  # type: ignore[valid-type]
            ],
            _unset("fields whose lists advance together instead of multiplying: all of one length"),
        ),
        "where": (
            list_type(expression_type()),
            _unset("keep only combinations for which this holds, such as `m * n <= 65536`"),
        ),
        "search": (search, _unset("this entry's own search settings, over the job's")),
        "measure": (measure, _unset("this entry's own measure settings, over the job's")),
    }
    if clash := own.keys() & lists.keys():
        raise TypeError(
            f"{op}: a problem's field can't be named {', '.join(sorted(clash))}: jobs use the word otherwise"
        )
    return create_model(op, __config__=_STRICT, __doc__=f"Problems of the operation {op}.", **own, **lists)


def _unset(doc: str) -> Any:
    """A field that may be left out. Whether it was is told by `model_fields_set`, never by its value."""
    return Field(default_factory=lambda: None, description=doc)


def _axis(info: FieldInfo) -> Any:
    return _unset(info.doc) if info.required else Field(default=info.default, description=info.doc)
