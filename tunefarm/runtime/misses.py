"""The problems that a plan book had no plan for, as a job file for the next sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any

from tunefarm.model.problem import Problem

NAME = "misses"


def job_text(missed: Mapping[Problem, int], name: str = NAME) -> str:
    """A job file with one op for each problem, most called first; the calls are its weight.

    Written without a YAML library, which an inference process does not have: keys, numbers and plain words need none.
    """
    lines = [
        f"# What a plan book had no plan for: {sum(missed.values())} calls of {len(missed)} problems.",
        f"job: {name}",
    ]
    lines += ["ops:"] if missed else ["ops: []"]
    for problem, calls in sorted(missed.items(), key=lambda item: (-item[1], item[0].key)):
        lines += ["", f"  # {problem.label}", f"  - op: {problem.op}", f"    weight: {calls}"]
        lines += [f"    {field}: {_scalar(value)}" for field, value in _said(problem).items()]
    return "\n".join(lines) + "\n"


def _said(problem: Problem) -> dict[str, Any]:
    """The fields that are not what they would be if left out."""
    values = {f.name: (getattr(problem, f.name), f.default) for f in fields(problem)}
    return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, StrEnum):
        # `none` is a word of these enums and of no YAML version's; quotes keep readers from wondering.
        return f'"{value.value}"'
    if isinstance(value, float):
        mantissa, _, exponent = repr(value).partition("e")
        if exponent and math.isfinite(value):  # YAML 1.1 wants a point and a sign there: 1.0e-05
            return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+03d}"
        return repr(value)
    return str(value)
