"""Where text goes: results to stdout, notes to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from tunefarm.model.errors import TunefarmError
from tunefarm.report.figures import UNBOUND, printable

if TYPE_CHECKING:  # a third of what `--help` may take
    from rich.console import RenderableType


class ReaderGone(Exception):
    """Whoever reads the results has seen enough (`| head`)."""


class Stderr:
    """A stream to stderr that never fails: that nobody reads what is told on the way ends no work."""

    def write(self, text: str) -> int:
        """Write if it can be written."""
        try:
            sys.stderr.write(text)
        except (OSError, ValueError):  # ValueError: the stream is closed
            silence(sys.stderr)
        return len(text)

    def flush(self) -> None:
        """Flush if that can be done."""
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            silence(sys.stderr)

    def isatty(self) -> bool:
        """Whether stderr is a terminal."""
        return not sys.stderr.closed and sys.stderr.isatty()

    @property
    def encoding(self) -> str:
        """Of stderr."""
        return sys.stderr.encoding


def silence(stream: TextIO) -> None:
    """Point a stream that nobody reads at the null device: the interpreter's own last flush must not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):  # it has no descriptor, and so no flush that could fail
        return


def note(text: str) -> None:
    """Some lines for people, on stderr. Whatever a terminal could take for a command is made visible."""
    print("\n".join(map(printable, text.split("\n"))), file=Stderr(), flush=True)


@contextmanager
def results(encoding: str | None = None) -> Iterator[TextIO]:
    """Stdout, to write results to.

    Args:
        encoding: what programs expect; None for people: the terminal's, with what it can't show as escapes.

    Raises:
        ReaderGone: nobody reads on.
        TunefarmError: they can't be written for another reason, such as a full disk.
    """
    try:
        if isinstance(sys.stdout, TextIOWrapper):
            if encoding:
                sys.stdout.reconfigure(encoding=encoding)
            else:
                sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError as error:
        silence(sys.stdout)
        raise ReaderGone from error
    except OSError as error:
        silence(sys.stdout)
        raise TunefarmError(f"can't write to stdout: {error.strerror or error}") from error


def print_json(payload: Any) -> None:
    """One JSON document on stdout."""
    with results("utf-8") as stream:
        print(json.dumps(payload, indent=2, allow_nan=False, ensure_ascii=False), file=stream)


def print_report(report: RenderableType) -> None:
    """Something that rich renders, on stdout: in colour and folded on a terminal, else plain and as wide as it is.

    `COLUMNS` sets the width in either case.
    """
    from rich.console import Console

    with results() as stream:
        if stream.isatty():
            Console(file=stream, highlight=False).print(report)
            return
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) > 0 else UNBOUND
        console = Console(file=stream, width=width, highlight=False, color_system=None)
        with console.capture() as capture:
            console.print(report)
        for line in capture.get().splitlines():  # cells are padded to their column's width
            print(line.rstrip(), file=stream)
