"""YAML text -> plain values, with the place of each.

Over the parser's events, not its constructor: no tag can make an object, no alias can multiply a document, sizes are
bounded before anything is built, and scalars are YAML 1.2's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tunefarm.jobfile.mistakes import MistakeLog
from tunefarm.jobfile.scalars import resolve_plain
from tunefarm.jobfile.text import TextError, Unopened, read_text
from tunefarm.jobfile.wording import clip

MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 24

Loc = tuple[str | int, ...]
"""Path of a value in its document: keys of mappings and indices of lists."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Mark:
    """A place in a text. Both count from 1."""

    line: int
    column: int


@dataclass
class Document:
    """One parsed file: plain values (dict, list, str, int, float, bool, None), and where each stands."""

    path: str
    """As messages name it."""
    value: Any = None
    values: dict[Loc, Mark] = field(default_factory=dict)
    keys: dict[Loc, Mark] = field(default_factory=dict)
    unread: set[Loc] = field(default_factory=set)
    """Where the text itself has a mistake: the value there means nothing, and needs no second message."""

    def trim(self, loc: Loc) -> Loc:
        """The part of a path that the document has.

        Validation sees a lone value as a list of one: an index that the document lacks is left out.
        """
        here: Loc = ()
        for step in loc:
            if (*here, step) in self.values:
                here = (*here, step)
            elif isinstance(step, str):
                break
        return here

    def locate(self, loc: Loc, *, at_key: bool = False) -> tuple[int, int, str]:
        """Line, column and dotted key of a value, or of the key before it."""
        place = self.trim(loc)
        mark = (self.keys if at_key and place in self.keys else self.values).get(place, Mark(1, 1))
        return mark.line, mark.column, dotted(place)


def dotted(loc: Loc) -> str:
    """A path as messages show it: `ops[0].head_dim`."""
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{clip(step)}" if text else clip(step)
    return text


def read_document(
    path: Path, name: str, log: MistakeLog, named_by: tuple[Document, Loc, str] | None = None
) -> Document | None:
    """Parse a file. None if it is not to be understood at all; its mistakes are then in the log.

    Args:
        path: the file.
        name: what messages call it.
        log: gets the mistakes.
        named_by: the place that names the file, and the text there: gets the blame for a file that can't be opened.
    """
    try:
        text = read_text(path)
    except Unopened as error:
        if named_by is None:
            log.add_at(name, 1, 1, str(error))
        else:
            document, loc, written = named_by
            log.add(document, loc, f"{clip(written)}: {error}")
        return None
    except TextError as error:
        log.add_at(name, error.line, error.column, str(error))
        return None
    builder = _Builder(Document(name), log)
    before = len(log)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except _Unreadable:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        log.add_at(name, line + 1, column + 1, _syntax_message(error, text, line, column))
        return None
    if builder.document.value is None and len(log) == before:
        log.add_at(name, 1, 1, "the file is empty: a job needs at least `ops:`, a list of operations to tune")
        return None
    return builder.document


def _syntax_message(error: yaml.MarkedYAMLError, text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    here = lines[line] if line < len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return "a tab: YAML indents with spaces only"
    problem = f"YAML syntax: {error.problem or 'unreadable'}"
    if error.context and error.context_mark and error.context_mark.line != line:
        problem += f" ({error.context} that begins on line {error.context_mark.line + 1})"
    if "mapping values are not allowed" in (error.problem or ""):
        return f"{problem}; put text that holds a colon in quotes, and check the indentation"
    if here[column : column + 1] in {"@", "`", "%"}:
        return f"{problem}; put text that begins with `{here[column]}` in quotes"
    return problem


class _Unreadable(Exception):
    """The document is left unread; the reason is in the log."""


@dataclass
class _Open:
    """A mapping or list whose end has not come yet."""

    loc: Loc
    content: dict[str, Any] | list[Any]
    key: str | None = None
    """The key that waits for its value."""
    repeated: bool = False
    """The key was there before: its value is read for its mistakes, and dropped."""

    @property
    def awaits_key(self) -> bool:
        """Whether what comes next is a key."""
        return isinstance(self.content, dict) and self.key is None


class _Builder:
    """Takes events one by one and builds values. Keeps its own stack: no depth of nesting can exhaust Python's."""

    def __init__(self, document: Document, log: MistakeLog) -> None:
        self.document = document
        self._log = log
        self._open: list[_Open] = []
        self._nodes = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """The next event.

        Raises:
            _Unreadable: reading on would be of no use, or too costly.
        """
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(event, "a second document begins; a job file holds one: remove this `---`")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._take_node(event)

    def _take_node(self, event: yaml.NodeEvent) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(event, f"over {MAX_NODES:,} values and keys, the most that a job file may have; split the job")
        top = self._open[-1] if self._open else None
        is_key = top is not None and top.awaits_key
        if (forbidden := _forbidden(event)) is not None:
            self._note(event, forbidden, spoils_value=not is_key)
        if top is not None and is_key:
            self._take_key(top, event)
            return
        content = self._content(event)
        loc = self._attach(top, content, _mark(event))
        if isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) == MAX_DEPTH:
                self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
            self._open.append(_Open(loc, content))

    def _content(self, event: yaml.NodeEvent) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return {}
        if isinstance(event, yaml.SequenceStartEvent):
            return []
        if not isinstance(event, yaml.ScalarEvent):
            return None
        if not event.implicit[0]:
            return event.value
        try:
            return resolve_plain(event.value)
        except ValueError as error:
            self._note(event, str(error))
            return None

    def _take_key(self, mapping: _Open, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.CollectionStartEvent):
            self._stop(event, "a list or mapping stands where a key belongs; if `{...}` is text, put it in quotes")
        key = event.value if isinstance(event, yaml.ScalarEvent) else ""
        loc = (*mapping.loc, key)
        mapping.key = key
        mapping.repeated = key in mapping.content
        if mapping.repeated:
            first = self.document.keys[loc].line
            self._note(
                event, f"the key `{clip(key)}` is there twice, first on line {first}; remove one", spoils_value=False
            )
        else:
            self.document.keys.setdefault(loc, _mark(event))

    def _attach(self, parent: _Open | None, content: Any, mark: Mark) -> Loc:
        """Put a value where it belongs, and return its path."""
        if parent is None:
            self.document.value = content
            loc: Loc = ()
        elif isinstance(parent.content, list):
            loc = (*parent.loc, len(parent.content))
            parent.content.append(content)
        else:
            assert parent.key is not None
            loc = (*parent.loc, parent.key)
            if not parent.repeated:
                parent.content[parent.key] = content
            parent.key = None
        self.document.values.setdefault(loc, mark)
        return loc

    def _note(self, event: yaml.NodeEvent, message: str, *, spoils_value: bool = True) -> None:
        place: Loc = ()
        mark = _mark(event)
        if self._open:
            top = self._open[-1]
            step = len(top.content) if isinstance(top.content, list) else top.key
            place = top.loc if step is None else (*top.loc, step)
        if spoils_value:
            self.document.unread.add(place)
        self._log.add_at(self.document.path, mark.line, mark.column, message, dotted(place))

    def _stop(self, event: yaml.Event, message: str) -> None:
        mark = _mark(event)
        self._log.add_at(self.document.path, mark.line, mark.column, message)
        raise _Unreadable


def _forbidden(event: yaml.NodeEvent) -> str | None:
    """What YAML has and job files don't, if the event is one."""
    if isinstance(event, yaml.AliasEvent):
        return "aliases (`*name`) are not allowed; write the value out, or share ops by `include:`"
    if event.anchor is not None:
        return "anchors (`&name`) are not allowed; write values out, or share ops by `include:`"
    if (tag := getattr(event, "tag", None)) is not None:
        return f"tags (`{clip(tag)}`) are not allowed; text that begins with `!` needs quotes"
    return None


def _mark(event: yaml.Event) -> Mark:
    assert event.start_mark is not None  # parsers always say; only hand-made events have none
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
