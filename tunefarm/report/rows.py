"""Rows of a query as a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement as Width
from rich.table import Table
from rich.text import Text

from tunefarm.report.figures import ABSENT, UNBOUND, printable


def rows_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> RowsReport:
    """Something that rich can print: columns as wide as their longest cell; where these don't fit, some lines a row."""
    return RowsReport(columns, tuple(rows))


@dataclass(frozen=True)
class RowsReport:
    """Rows by the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table = self._table()
        if Width.get(console, options.update(max_width=UNBOUND), table).maximum <= options.max_width:
            yield table
            return
        for place, row in enumerate(self.rows):
            if place:
                yield ""
            for name in self.columns:
                yield Text(f"{printable(name)}: {printable(_cell(row[name]))}", overflow="fold")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in self.columns:
            values = [row[name] for row in self.rows]
            is_number = any(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            table.add_column(Text(printable(name)), justify="right" if is_number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(printable(_cell(row[name]))) for name in self.columns))
        return table


def _cell(value: Any) -> str:
    match value:
        case None:
            return ABSENT
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | dict():
            return json.dumps(value, default=str)
        case _:
            return str(value)
