"""Reading a job: files, entries, count, expansion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefarm.jobfile.checking import settings
from tunefarm.jobfile.entry import Entry, read_entry
from tunefarm.jobfile.expand import expand
from tunefarm.jobfile.fields import is_text
from tunefarm.jobfile.files import Source, read_files
from tunefarm.jobfile.mistakes import MistakeLog
from tunefarm.jobfile.schema import PROBLEM_TYPES, Grammar, ProblemTypes, grammar_of
from tunefarm.model.job import Job, Protocol, Search, Task
from tunefarm.model.problem import Problem

DEFAULT_LIMIT = 100_000
"""Combinations that a job may have before conditions."""


def read_job(path: Path, *, limit: int = DEFAULT_LIMIT, problem_types: ProblemTypes = PROBLEM_TYPES) -> Job:
    """Read and check a job file.

    Args:
        path: the file.
        limit: how many combinations all entries may have together, before conditions. Counted before any is made.
        problem_types: problem classes by operation.

    Raises:
        JobError: with every mistake of the file and of those that it includes.
    """
    log = MistakeLog()
    grammar = grammar_of(problem_types)
    sources = read_files(path, grammar, log)
    entries = [entry for source in sources for entry in _entries(source, grammar, log)]
    own = sources[-1] if sources else None
    name = _job_name(path, own, log)
    tasks: list[Task] = []
    if own is not None and not log.full and _count_is_within(limit, entries, own, log):
        search, measure = settings(_setting(own, "search")), settings(_setting(own, "measure"))
        tasks = [task for entry in entries for task in expand(entry, search, measure, log)]
    log.raise_if_any()
    kept = _without_duplicates(tasks)
    return Job(name=name, path=str(path), tasks=kept, duplicates=len(tasks) - len(kept))


def _setting(source: Source, name: str) -> Any:
    model = source.model
    return getattr(model, name) if model is not None and name in model.model_fields_set else None


def _entries(source: Source, grammar: Grammar, log: MistakeLog) -> Iterator[Entry]:
    content = source.document.value
    ops = content.get("ops") if isinstance(content, dict) else None
    for i, value in enumerate(ops if isinstance(ops, list) else []):
        if log.full:
            return
        entry = read_entry(source.document, ("ops", i), value, grammar, log)
        if entry is not None:
            yield entry


def _job_name(path: Path, own: Source | None, log: MistakeLog) -> str:
    name: str = (_setting(own, "job") if own else None) or path.stem
    if own and not is_text(name):
        log.add(own.document, (), "the file's name is too odd or long for the job's: give it one by `job:`")
    return name


def _count_is_within(limit: int, entries: Sequence[Entry], own: Source, log: MistakeLog) -> bool:
    """Whether there are few enough combinations to make them all."""
    total = sum(entry.combinations for entry in entries)
    if total <= limit:
        return True
    too_large = [entry for entry in entries if entry.combinations > limit]
    mend = f"over the limit of {limit:,}; shorten lists, pair them by `zip:`, or raise it by `--limit N`"
    for entry in too_large:
        log.add(
            entry.document, entry.loc, f"the lists multiply to {_spell_count(entry.combinations)} combinations, {mend}"
        )
    if not too_large:
        log.add(own.document, ("ops",), f"all entries together have {_spell_count(total)} combinations, {mend}")
    return False


def _spell_count(count: int) -> str:
    digits = len(str(count))
    return f"{count:,}" if digits <= 18 else f"over 10^{digits - 1}"


def _without_duplicates(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The first of those that are alike, with the weight of the heaviest; the heaviest first."""
    seen: dict[tuple[Problem, Search, Protocol], Task] = {}
    for task in tasks:
        key = task.problem, task.search, task.protocol
        seen[key] = replace(seen[key], weight=max(seen[key].weight, task.weight)) if key in seen else task
    return tuple(sorted(seen.values(), key=lambda task: -task.weight))
