"""The mistakes of a job, collected so that all are told at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tunefarm.model.errors import JobError, Mistake

if TYPE_CHECKING:
    from tunefarm.jobfile.yaml_source import Document, Loc

MAX_MISTAKES = 100
"""More than this help nobody."""


class MistakeLog:
    """The mistakes of one job and of the files that it includes."""

    def __init__(self) -> None:
        self._mistakes: list[Mistake] = []
        self._noted = 0

    def __len__(self) -> int:
        return self._noted

    @property
    def full(self) -> bool:
        """Whether further mistakes are no longer kept, so that none need be looked for."""
        return len(self._mistakes) >= MAX_MISTAKES

    def add(self, document: Document, loc: Loc, message: str, *, at_key: bool = False) -> None:
        """Note a mistake at a place of a document: at the value there, or at the key before it."""
        line, column, key = document.locate(loc, at_key=at_key)
        self.add_at(document.path, line, column, message, key)

    def add_at(self, path: str, line: int, column: int, message: str, key: str = "") -> None:
        """Note a mistake at a line and column, both from 1."""
        self._noted += 1
        if not self.full:
            self._mistakes.append(Mistake(path, line, column, key, message))

    def raise_if_any(self) -> None:
        """End here if anything is wrong.

        Raises:
            JobError: with the mistakes noted.
        """
        if not self._mistakes:
            return
        if self.full:
            *others, last = sorted(self._mistakes)
            more = f"{last.message} (there may be more mistakes: {MAX_MISTAKES} are told at a time)"
            raise JobError([*others, replace(last, message=more)])
        raise JobError(self._mistakes)
