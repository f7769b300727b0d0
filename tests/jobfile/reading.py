"""Reading job files from text."""

import tempfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.jobfile.problems import PROBLEM_TYPES
from tunefarm.jobfile import read_job
from tunefarm.model.errors import JobError, Mistake
from tunefarm.model.job import Job


def read(content: str | bytes, **options: Any) -> Job:
    """The job of a file with this content, over the operations of `problems`."""
    raw = dedent(content).encode() if isinstance(content, str) else content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sample.yaml")
        path.write_bytes(raw)
        return read_job(path, **{"problem_types": PROBLEM_TYPES, **options})


def mistakes(content: str | bytes, **options: Any) -> list[Mistake]:
    """The mistakes of a file with this content."""
    with pytest.raises(JobError) as caught:
        read(content, **options)
    return caught.value.mistakes


def mistake(content: str | bytes, **options: Any) -> Mistake:
    """The only mistake of a file with this content."""
    found = mistakes(content, **options)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def values(job: Job, *fields: str) -> list[Any]:
    """Fields of each problem, in order: bare values if one field is asked for."""
    rows = [tuple(getattr(task.problem, field) for field in fields) for task in job.tasks]
    return [row[0] for row in rows] if len(fields) == 1 else rows
