"""Operation families: one module each, everything about it in one place."""

from collections.abc import Mapping
from typing import Any

from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem
from tunefarm.ops.conv import Conv
from tunefarm.ops.matmul import Matmul
from tunefarm.ops.operation import Operation
from tunefarm.ops.sdpa import Sdpa

OPERATIONS: Mapping[str, Operation[Any]] = {operation.name: operation for operation in (Conv(), Matmul(), Sdpa())}
"""Every operation family by the name that jobs use."""


def operation_of(problem: Problem) -> Operation[Any]:
    """The family that a problem belongs to."""
    return OPERATIONS[problem.op]


def problem_from_dict(op: str, payload: Mapping[str, Any]) -> Problem:
    """The problem that `Problem.to_dict` described.

    Raises:
        InvalidProblem: no such operation, or its fields contradict each other.
        TypeError: a field is missing or unknown.
    """
    if op not in OPERATIONS:
        raise InvalidProblem("op", f"no operation named {op!r}; there are {', '.join(sorted(OPERATIONS))}")
    return OPERATIONS[op].problem_type.from_dict(payload)
