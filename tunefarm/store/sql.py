"""SQL over a store: DuckDB with no way out of the tables that it is handed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tunefarm.model.errors import UsageError
from tunefarm.store.schema import VIEWS

if TYPE_CHECKING:  # a tenth of a second to import, which a sweep need not pay
    import duckdb

MEMORY_LIMIT = "4GB"
"""Of DuckDB's own working memory. There is no spilling to disk: a query that needs more is refused."""
MAX_THREADS = 4

_LOCKED = {
    # No file, no network, no extension. (Handing over the folder as an allowed directory would let COPY write there.)
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Else a table that is missing is looked for among the caller's Python variables.
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": MEMORY_LIMIT,
}

_VIEWS_OF = {"all_trials": ("trials", "winners"), "all_proposals": ("proposals",), "plans": ("plans",)}
"""The tables in parts, and the views that need them. Plans are large: no other query should read them."""

_DERIVED = {
    "all_trials": """
        CREATE VIEW trials AS SELECT * FROM all_trials QUALIFY row_number() OVER (
            PARTITION BY trial_key ORDER BY finished_at DESC, part DESC, part_row DESC) = 1;
        CREATE VIEW winners AS SELECT * FROM trials WHERE standing = 'won' QUALIFY row_number() OVER (
            PARTITION BY problem, target, protocol ORDER BY finished_at DESC, part DESC, part_row DESC) = 1""",
    "all_proposals": """
        CREATE VIEW proposals AS SELECT * FROM all_proposals QUALIFY row_number() OVER (
            PARTITION BY problem, target, search, engine ORDER BY proposed_at DESC, part DESC, part_row DESC) = 1""",
}
"""Views over a table that was handed in."""

_OPERATORS = {"=": "IS NOT DISTINCT FROM", "!=": "IS DISTINCT FROM", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
}

Filter = tuple[str, str, object]
"""A column, an operator (= != < <= > >=) and a value. None is a value: `("standing", "=", None)` finds nulls."""


_HELP = f"The views are {', '.join(VIEWS)}; `DESCRIBE trials` tells the columns of one."


class FailedRunning(UsageError):
    """A query that was understood, and failed as it ran: by what it asks, or by a part that broke under it."""


def tables_of(query: str) -> set[str]:
    """The tables in parts that a query needs: those whose views it mentions, or all if none (`SHOW TABLES`)."""
    text = query.casefold()
    mentioned = {table for table, views in _VIEWS_OF.items() if any(view in text for view in views)}
    return mentioned or set(_VIEWS_OF)


def run_query(query: str, tables: Mapping[str, Any], parameters: Sequence[object] = ()) -> pa.Table:
    """What one SELECT gives over the views.

    Args:
        query: the SQL.
        tables: those that `tables_of` the query gave, and `targets`.
        parameters: values of the query's `?`.

    Raises:
        UsageError: anything but one SELECT, an attempt to leave the tables, or an error in the query.
        FailedRunning: the UsageError of a query that had begun to run.
    """
    import duckdb

    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the query is no text: character {error.start + 1} stands for a byte that is not UTF-8; type it anew"
        ) from error
    with duckdb.connect(":memory:", config={**_LOCKED, "threads": str(min(MAX_THREADS, os.cpu_count() or 1))}) as db:
        for name, table in tables.items():
            db.register(name, table)
            db.execute(_DERIVED.get(name, ""))
        db.execute("SET TimeZone = 'UTC'")
        db.execute("SET lock_configuration = true")
        try:
            _require_one_select(db, query)
            relation = db.sql(query, params=list(parameters) or None)
        except duckdb.Error as error:
            raise UsageError(f"{error}\n{_HELP}") from error
        try:
            result = _fetch(db, relation)
        except duckdb.Error as error:
            raise FailedRunning(f"{error}\n{_HELP}") from error
    twice = sorted({name for name in result.column_names if result.column_names.count(name) > 1})
    if twice:
        raise UsageError(f"the query gives more than one column named {', '.join(twice)}; name them apart with AS")
    return result


def select_query(
    view: str,
    filters: Sequence[Filter] = (),
    columns: Sequence[str] = (),
    order: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[str, list[object]]:
    """The SQL of a plain selection, and its parameters.

    Args:
        view: one of `schema.VIEWS`.
        filters: rows that pass all of them.
        columns: which, in that order; none for all.
        order: columns to sort by, `-` before one for descending, nulls last; none for the order of writing.
        limit: rows at most.

    Raises:
        UsageError: a view, column or operator that there is not.
    """
    if view not in VIEWS:
        raise UsageError(f"no view named {view!r}{_guess(view, VIEWS)}; there are {', '.join(VIEWS)}")
    schema = VIEWS[view]
    _require_columns(view, [*columns, *(name.removeprefix("-") for name in order)])
    wanted = ", ".join(_column(view, name) for name in columns or schema.names)
    query = f"SELECT {wanted} FROM {view}"  # noqa: S608 - views and columns are checked against the schema, values are bound
    parameters: list[object] = []
    if filters:
        query += " WHERE " + " AND ".join(_condition(view, column, operator) for column, operator, _ in filters)
        parameters += [value for _, _, value in filters]
    by_default = ("part", "part_row") if "part" in schema.names else schema.names[:1]
    keys = ((name.removeprefix("-"), "DESC" if name.startswith("-") else "ASC") for name in order or by_default)
    query += " ORDER BY " + ", ".join(f"{_column(view, name)} {way} NULLS LAST" for name, way in keys)
    if limit is not None:
        if limit < 0:
            raise UsageError(f"the limit is {limit}; give 0 or more")
        query += f" LIMIT {limit}"
    return query, parameters


def _require_one_select(db: duckdb.DuckDBPyConnection, query: str) -> None:
    import duckdb

    statements = db.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(s.type.name for s in statements) or "nothing"
        raise UsageError(f"only one SELECT can be run on a store, and this is {kinds}\n{_HELP}")


def _fetch(db: duckdb.DuckDBPyConnection, relation: Any) -> pa.Table:
    # In a thread: DuckDB called from the main one may not look for a Ctrl-C until the query is through.
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(relation.to_arrow_table)
        try:
            return running.result()
        except BaseException:
            db.interrupt()
            raise


def _condition(view: str, name: str, operator: str) -> str:
    if operator not in _OPERATORS:
        raise UsageError(f"no operator {operator!r}; there are {' '.join(_OPERATORS)}")
    column = _column(view, name)
    kind = _SQL_TYPES.get(VIEWS[view].field(name).type)
    if kind is None:
        raise UsageError(f"column {name} of {view} holds lists and can't be filtered by; use SQL")
    return f"{column} {_OPERATORS[operator]} CAST(? AS {kind})"


def _column(view: str, name: str) -> str:
    _require_columns(view, [name])
    return f'"{name}"'


def _require_columns(view: str, wanted: Sequence[str]) -> None:
    names = VIEWS[view].names
    unknown = [name for name in dict.fromkeys(wanted) if name not in names]
    if not unknown:
        return
    guesses = {name: guess for name in unknown if (guess := _guess(name, names))}
    lines = [f"{view} has no column {name!r}{guesses.get(name, '')}" for name in unknown]
    if len(guesses) < len(unknown):
        lines.append(f"there are {', '.join(names)}")
    raise UsageError("\n".join(lines))


def _guess(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    close = get_close_matches(name, list(names), n=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""
