"""The files of a job: its own, and those that it includes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tunefarm.jobfile.checking import check
from tunefarm.jobfile.fields import as_list, is_text
from tunefarm.jobfile.mistakes import MAX_MISTAKES, MistakeLog
from tunefarm.jobfile.schema import MAX_PATH, Grammar
from tunefarm.jobfile.wording import closest
from tunefarm.jobfile.yaml_source import Document, Loc, read_document

MAX_FILES = 100


@dataclass(frozen=True)
class Source:
    """One file of a job."""

    document: Document
    model: BaseModel | None
    """None if its top level has mistakes."""


def read_files(path: Path, grammar: Grammar, log: MistakeLog) -> list[Source]:
    """A job's files, each once, those that a file includes before the file itself; the job's own is the last.

    Included files must lie in the folder of the job's file or below it, links followed on both sides: so a job from
    elsewhere can't show, by its error messages, what other files hold.
    """
    reading = _Reading(grammar, log)
    reading.read(path, str(path), ())
    return reading.sources


@dataclass
class _Reading:
    grammar: Grammar
    log: MistakeLog
    sources: list[Source] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    root: Path = field(default_factory=Path)
    """The folder that no include may lead out of."""

    def read(
        self, path: Path, name: str, above: tuple[Path, ...], named_by: tuple[Document, Loc, str] | None = None
    ) -> None:
        """Read a file and, before it, what it includes.

        Args:
            path: the file.
            name: what messages call it.
            above: the files that lead here, links resolved.
            named_by: the `include:` that leads here, and its text.
        """
        document = read_document(path, name, self.log, named_by)
        if document is None:
            return
        here = path.resolve()
        if not above:
            self.root = here.parent
            self.seen.add(here)
        source = Source(document, check(self.grammar.document, document, (), document.value, self.log))
        if isinstance(document.value, dict):
            if not document.value.keys() & {"ops", "include"} and not _misspelt(document.value):
                self.log.add(document, (), "`ops` is missing: a list of operations to tune")
            for i, target in enumerate(as_list(document.value.get("include", []))):
                if isinstance(target, str) and is_text(target, MAX_PATH):
                    self._include(document, i, target, (*above, here))
        self.sources.append(source)

    def _include(self, document: Document, i: int, written: str, above: tuple[Path, ...]) -> None:
        loc: Loc = ("include", i)
        path = above[-1].parent / written
        try:
            target = path.resolve()
        except (OSError, RuntimeError):  # a loop of links
            self.log.add(document, loc, "can't be followed: its links lead in a circle")
            return
        if Path(written).is_absolute() or not target.is_relative_to(self.root):
            self.log.add(
                document, loc, "leads out of the job's folder; give a path relative to this file, and within it"
            )
        elif target in above:
            names = " -> ".join(p.name for p in (*above[above.index(target) :], target))
            self.log.add(document, loc, f"files include each other in a circle: {names}; remove one `include:`")
        elif target not in self.seen:
            if len(self.seen) >= MAX_FILES:
                self.log.add(document, loc, f"over {MAX_FILES} files, the most that a job may have")
            else:
                self.seen.add(target)
                name = os.path.normpath(Path(document.path).parent / written)
                self.read(target, name, above, (document, loc, written))


def _misspelt(value: dict[str, Any]) -> bool:
    return any(
        closest(key, ["ops", "include"])
        for key in list(value)[:MAX_MISTAKES]
        if key not in {"job", "search", "measure"}
    )
