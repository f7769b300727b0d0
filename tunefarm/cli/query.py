"""`tunefarm query`."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunefarm.cli.options import store_option, warn_of_damage
from tunefarm.cli.output import note, print_report, results
from tunefarm.model.errors import UsageError
from tunefarm.model.trial import Standing, Status

if TYPE_CHECKING:
    from tunefarm.store import Store

FORMATS = ("table", "json", "csv", "parquet")
GLANCE = (
    "name",
    "engine",
    "candidate_name",
    "status",
    "standing",
    "time_us",
    "worst_l2",
    "workspace_bytes",
    "build_ms",
)
"""Columns of a table that no `--columns` asked for. The other formats have all."""
GLANCE_AT_WINNERS = ("name", "label", *(column for column in GLANCE[1:] if column not in {"status", "standing"}))
SUFFIXES = {".json": "json", ".csv": "csv", ".parquet": "parquet"}


@click.command()
@store_option
@click.option("--op", help="Only this operation family.")
@click.option("--status", type=click.Choice([s.value for s in Status]), help="Only candidates that ended so.")
@click.option("--standing", type=click.Choice([s.value for s in Standing]), help="Only candidates that stand so.")
@click.option("--engine", type=click.Choice(["cudnn", "torch"]), help="Only candidates of this engine.")
@click.option("--problem", help="Only this problem: its name, label, or key or the beginning of it.")
@click.option("--job", help="Only trials of the job of this name.")
@click.option("--name", help="Only problems of this name.")
@click.option("--winners", "view", flag_value="winners", help="Only each problem's winner.")
@click.option("--all", "view", flag_value="all_trials", help="Superseded trials too, not only the latest of each key.")
@click.option("--columns", metavar="A,B,...", help="Which columns, in this order.")
@click.option("--sort", metavar="A,-B,...", help="Columns to sort by; - before one for descending.")
@click.option("--limit", type=click.IntRange(min=0), help="Rows at most.")
@click.option("--sql", metavar="SELECT", help="One SELECT over the store's views, instead of all options above.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How to print the rows; by default what FILE ends in, or table.",
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to a file, not to stdout."
)
def query(store_path: str, sql: str | None, form: str | None, output: Path | None, **selection: Any) -> int:
    """Read the store: trials by filters, or anything by SQL.

    The views are trials (the latest of each key), winners, all_trials, proposals, plans and targets.
    """
    from tunefarm.store import Store, readable, write_table

    form = form or (SUFFIXES.get(output.suffix.lower()) if output else None) or "table"
    _check(sql, form, output, selection)
    store = Store.open(store_path)
    try:
        table = store.sql(sql) if sql is not None else _select(store, form, **selection)
        if not table.num_rows:
            _require_known(store, selection)
    except UsageError as error:
        if not store.damage:
            raise
        note(f"tunefarm: {error}")  # what is missing may be in a part that is damaged
        return warn_of_damage(store)
    if form == "table":
        from tunefarm.report.rows import rows_table

        print_report(rows_table(table.column_names, readable(table).to_pylist()))
        if not table.num_rows:
            note("no rows")
    elif output is not None:
        write_table(table, form, output)
    else:
        with results("utf-8") as stdout:
            write_table(table, form, stdout)
    return warn_of_damage(store)


def _check(sql: str | None, form: str, output: Path | None, selection: dict[str, Any]) -> None:
    given = [name for name, value in selection.items() if value is not None]
    if sql is not None and given:
        options = ", ".join("--winners or --all" if name == "view" else f"--{name}" for name in given)
        raise UsageError(f"--sql takes the place of {options}; say it in the SELECT")
    if form == "parquet" and output is None:
        raise UsageError("Parquet is no text: give --output FILE")
    if form == "table" and output is not None:
        raise UsageError(
            "a table is for people; give --format json, csv or parquet with --output, or a FILE that ends so"
        )
    if selection["op"] is not None:
        from tunefarm.ops import OPERATIONS

        if selection["op"] not in OPERATIONS:
            raise UsageError(f"no operation named {selection['op']!r}; there are {', '.join(sorted(OPERATIONS))}")


def _require_known(store: Store, selection: dict[str, Any]) -> None:
    """That nothing was found is no answer to a name that is misspelt."""
    for column in ("name", "job"):
        wanted = selection[column]
        if wanted is None:
            continue
        known = set(store.select("all_trials", columns=[column]).column(column).drop_null().to_pylist())
        if wanted not in known:
            close = get_close_matches(wanted, known, n=3)
            guess = f"; did you mean {' or '.join(close)}?" if close else ""
            raise UsageError(f"the store has no {column} {wanted!r}{guess}")


def _select(
    store: Store,
    form: str,
    *,
    view: str | None,
    problem: str | None,
    columns: str | None,
    sort: str | None,
    limit: int | None,
    **equal: str | None,
) -> Any:
    filters = [(column, "=", value) for column, value in equal.items() if value is not None]
    if problem is not None:
        filters.append(("problem", "=", store.resolve_problem(problem)))
    wanted = _names(columns) or ((GLANCE_AT_WINNERS if view == "winners" else GLANCE) if form == "table" else ())
    return store.select(view or "trials", filters, wanted, _names(sort), limit)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()
