"""The parts of README.md that are made from the code. `python -m tests.readme` writes them anew."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from tunefarm.cli.app import EXIT_CODES
from tunefarm.jobfile.fields import FieldInfo, fields_of
from tunefarm.model.job import Protocol, Search
from tunefarm.ops import OPERATIONS
from tunefarm.store import VIEWS

README = Path(__file__).parent.parent / "README.md"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def field_row(info: FieldInfo) -> tuple[str, str, str, str]:
    default = "required" if info.required else spelled(info.default)
    return f"`{info.name}`", values_of(info), default, info.doc


def values_of(info: FieldInfo) -> str:
    if info.choices is not None:
        return ", ".join(f"`{choice}`" for choice in info.choices)
    kind = info.kind
    if isinstance(kind, UnionType):
        (kind,) = (k for k in get_args(kind) if k is not type(None))
    name = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}.get(kind, "list of text")
    low, high = info.low, info.high
    bounds = {(False, True): f" from {low}", (True, False): f" to {high}", (False, False): f" from {low} to {high}"}
    return name + bounds.get((low is None, high is None), "")


def spelled(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{value.value if isinstance(value, StrEnum) else value}`"


def job_fields() -> str:
    headings = ("field", "values", "default", "meaning")
    parts = [
        f"`op: {name}`\n\n{table(headings, map(field_row, fields_of(operation.problem_type).values()))}"
        for name, operation in OPERATIONS.items()
    ]
    parts += [
        f"`{word}:` of the job or of an entry\n\n{table(headings, map(field_row, fields_of(record).values()))}"
        for word, record in (("search", Search), ("measure", Protocol))
    ]
    return "\n\n".join(parts)


def columns() -> str:
    rows = [(f"`{field.name}`", str(field.type), field.metadata[b"doc"].decode()) for field in VIEWS["trials"]]
    return table(("column", "type", "meaning"), rows)


def exit_codes() -> str:
    return table(("code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])


PARTS = {"job fields": job_fields, "columns": columns, "exit codes": exit_codes}


def part_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- begin: {name} -->\n)(.*?)(<!-- end: {name} -->)", re.DOTALL)


def rewritten(text: str) -> str:
    """The README with every part made anew."""
    for name, make in PARTS.items():
        begin, _, end = part_pattern(name).search(text).groups()
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
