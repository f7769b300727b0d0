"""Where text goes: results to stdout, notes to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tunefarm.report.figures import UNBOUND

if TYPE_CHECKING:  # a third of what `--help` may take
    from rich.console import RenderableType


def note(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(payload: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(payload, indent=2, allow_nan=False, ensure_ascii=False))


def print_report(report: RenderableType) -> None:
    """Something that rich renders, on stdout: in colour and folded on a terminal, else plain and as wide as it is.

    `COLUMNS` sets the width in either case.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        Console(file=sys.stdout, highlight=False).print(report)
        return
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) > 0 else UNBOUND
    console = Console(file=sys.stdout, width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(report)
    for line in capture.get().splitlines():  # cells are padded to their column's width
        print(line.rstrip())
