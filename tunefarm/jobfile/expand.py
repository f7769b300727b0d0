"""Entries -> tasks: the product of the axes, filtered."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from tunefarm.jobfile.entry import Choice, Entry
from tunefarm.jobfile.fields import defaults_of
from tunefarm.jobfile.mistakes import MistakeLog
from tunefarm.jobfile.where import ConditionError
from tunefarm.jobfile.wording import as_written
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.job import Protocol, Search, Task
from tunefarm.model.problem import Problem

Combination = tuple[Choice, ...]


def expand(entry: Entry, search: Mapping[str, Any], measure: Mapping[str, Any], log: MistakeLog) -> list[Task]:
    """The tasks of an entry, in the order of its axes; mistakes that only combinations show go to the log.

    Args:
        entry: the entry. Its combinations were counted before: they are all made here.
        search: the job's search settings.
        measure: the job's measure settings.
        log: gets at most one mistake of each kind.
    """
    entry_search = Search(**{**search, **entry.search})
    protocol = Protocol(**{**measure, **entry.measure})
    defaults = defaults_of(entry.fields)
    tasks: list[Task] = []
    first_invalid: tuple[Combination, InvalidProblem] | None = None
    invalid = 0
    for steps in product(*entry.axes):
        combination = tuple(choice for step in steps for choice in step)
        values = {choice.field: choice.value for choice in combination}
        made = _make(entry, values)
        known = {**defaults, **values} if isinstance(made, InvalidProblem) else _fields_of(made, entry)
        passes = _passes(entry, combination, known, may_fail=isinstance(made, InvalidProblem), log=log)
        if passes is None:
            return []
        if passes and isinstance(made, InvalidProblem):
            first_invalid = first_invalid or (combination, made)
            invalid += 1
        elif passes and isinstance(made, Problem):
            tasks.append(Task(entry.name or made.label, made, entry_search, protocol, entry.weight))
    if first_invalid:
        _report_invalid(entry, *first_invalid, invalid, log)
    elif not tasks:
        message = f"0 of {entry.combinations:,} combinations pass, so nothing is left to tune; loosen the condition"
        log.add(entry.document, (*entry.loc, "where"), message)
    return tasks


def _make(entry: Entry, values: Mapping[str, Any]) -> Problem | InvalidProblem:
    try:
        return entry.problem_type(**values)
    except InvalidProblem as error:
        return error


def _fields_of(problem: Problem, entry: Entry) -> Mapping[str, Any]:
    """The fields as the problem has them: one that defaults to another field's value has it by now."""
    return {name: getattr(problem, name) for name in entry.fields} if entry.conditions else {}


def _passes(
    entry: Entry, combination: Combination, known: Mapping[str, Any], *, may_fail: bool, log: MistakeLog
) -> bool | None:
    """Whether every condition holds; None if one can't be evaluated.

    Args:
        entry: the entry.
        combination: the combination.
        known: value of every field.
        may_fail: the problem is invalid. Conditions are asked nonetheless, since they may be there to leave it out; if
            they can't be evaluated, the problem's own mistake is the one to tell.
        log: gets the mistake.
    """
    for condition, loc in entry.conditions:
        try:
            if not condition.holds(known):
                return False
        except ConditionError as error:
            if not may_fail:
                log.add(entry.document, loc, f"{error}{_shown(entry, combination)}")
                return None
    return True


def _report_invalid(entry: Entry, combination: Combination, error: InvalidProblem, count: int, log: MistakeLog) -> None:
    loc = next((choice.loc for choice in combination if choice.field == error.field), entry.loc)
    message = f"{error.message}{_shown(entry, combination)}"
    if count > 1:
        message += f", and {count - 1:,} combinations more can't be"
    if entry.combinations > count:
        message += "; change the lists, or leave such combinations out by a condition under `where:`"
    log.add(entry.document, loc, message)


def _shown(entry: Entry, combination: Combination) -> str:
    """The combination, by the fields that vary: ` (with m=8, n=16)`."""
    varying = {choice.field for axis in entry.axes if len(axis) > 1 for choice in axis[0]}
    shown = [f"{c.field}={as_written(c.value)}" for c in combination if c.field in varying]
    return f" (with {', '.join(shown)})" if shown else ""
