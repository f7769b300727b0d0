"""Whatever anybody asks of a store or puts into it: an answer, or an error of ours with a mend."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.store.make import TARGET, open_store, trial
from tunefarm.model.errors import StoreError, UsageError
from tunefarm.store import VIEWS, Store
from tunefarm.store.format import FORMAT_FILE

ONCE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = (
    *(
        "SELECT",
        "*",
        "FROM",
        "WHERE",
        "GROUP BY ALL",
        "ORDER BY",
        "LIMIT",
        "(",
        ")",
        ",",
        "'",
        '"',
        ";",
        "--",
        "/*",
        "?",
        "$1",
    ),
    *(
        "count(*)",
        "time_us",
        "blocks",
        "knobs",
        "NULL",
        "1",
        "-1",
        "1e999",
        "'a'",
        "[1]",
        "{'a': 1}",
        "UNION ALL",
        "WITH",
    ),
    *(
        "COPY",
        "ATTACH",
        "INSTALL",
        "read_csv('/etc/passwd')",
        "getenv('HOME')",
        "SET",
        "DESCRIBE",
        "\0",
        "\ud800",
        "é",
        *VIEWS,
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@ONCE
@given(words=st.lists(st.sampled_from(WORDS), max_size=9))
@example(["SELECT", "1e999"])
@example(["SELECT", "\0"])
@example(["SELECT", "\ud800"])
def test_any_query_is_answered_or_refused(store: Store, words: list[str]) -> None:
    store.append_trials([trial()])
    for query in (" ".join(words), f"SELECT {' '.join(words)} FROM trials"):
        with suppress(UsageError):
            store.sql(query)


@ONCE
@given(view=st.sampled_from([*VIEWS, "x"]), column=st.text(max_size=8), value=JSON, limit=st.integers(-2, 3))
def test_any_selection_is_answered_or_refused(store: Store, view: str, column: str, value: object, limit: int) -> None:
    for filters in ([(column, "=", "x")], [("time_us", "<", str(value))], [("name", "=", str(value))]):
        with suppress(UsageError):
            store.select(view, filters, [column] if column in TARGET.to_dict() else [], (), limit)


@ONCE
@given(text=st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()))
@example(b'{"format": true}')
@example(b'{"format": 1e400}')
@example(b'{"format": ' + b"9" * 5000 + b"}")
def test_any_format_file_is_read_or_refused(store: Store, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "store" / FORMAT_FILE).write_bytes(text)
    for create in (False, True):
        with suppress(StoreError):
            open_store(tmp_path / "store", create=create).trials()


@pytest.mark.parametrize("name", ["\udce9.parquet", "a\nb.parquet", "x" * 200 + ".parquet"])
def test_a_stray_file_of_any_name_is_named(store: Store, tmp_path: Path, name: str) -> None:
    store.append_trials([trial()])
    (tmp_path / "store" / "trials" / "v1" / name).write_bytes(b"PAR1")
    reader = open_store(tmp_path / "store")
    assert reader.trials() == [trial()]
    assert len(reader.damage) == 1
    assert len(reader.check(set_aside=True)) == 1
    assert reader.check() == ()
