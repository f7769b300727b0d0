"""Rows of a query as a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefarm.report.figures import ABSENT, printable


def rows_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Columns as wide as their longest cell; where the output is narrower, cells fold and nothing is cut off."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    rows = list(rows)
    for name in columns:
        is_number = any(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
        table.add_column(Text(printable(name)), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_cell(row[name]))) for name in columns))
    return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ABSENT
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case list() | dict():
            return json.dumps(value, default=str)
        case _:
            return str(value)
