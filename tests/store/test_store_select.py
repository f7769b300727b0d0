"""Selections without SQL, and names of problems."""

from dataclasses import replace

import pytest

from tests.store.make import TARGET, failed, trial
from tests.strategies import Toy
from tunefarm.model.errors import UsageError
from tunefarm.model.trial import Standing
from tunefarm.store import Store


@pytest.fixture
def filled(store: Store) -> Store:
    store.append_trials([trial(name=f"eng{i}", us=10.0 + i, minutes=i) for i in range(3)])
    store.append_trials([failed(name="bad"), trial(name="other", n=2048, standing=Standing.TIED)])
    return store


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ["eng0", "eng1", "eng2", "bad", "other"]),
        ([("status", "=", "crashed")], ["bad"]),
        ([("status", "!=", "crashed"), ("problem", "=", Toy(1024).key)], ["eng0", "eng1", "eng2"]),
        ([("time_us", "<", "11.5")], ["eng0", "eng1", "other"]),
        ([("time_us", ">=", 11)], ["eng1", "eng2"]),
        ([("time_us", ">", 11)], ["eng2"]),
        ([("time_us", "<=", 10.0)], ["eng0", "other"]),
        ([("signal", "=", None)], ["eng0", "eng1", "eng2", "other"]),
        ([("signal", "!=", None)], ["bad"]),
        ([("standing", "!=", "won")], ["bad", "other"]),  # null is another value, too
        ([("dynamic", "=", "false"), ("engine", "=", "torch")], []),
        ([("finished_at", ">", "2026-01-01T12:01:30Z")], ["eng2"]),
        ([("candidate_name", "=", "' OR 1=1 --")], []),
    ],
)
def test_filters_choose_rows(filled: Store, filters: list[tuple[str, str, object]], expected: list[str]) -> None:
    found = filled.select("trials", filters, ["candidate_name"])
    assert found.to_pylist() == [{"candidate_name": name} for name in expected]


def test_columns_order_and_limit_are_as_asked(filled: Store) -> None:
    found = filled.select("trials", columns=["time_us", "name"], order=["-time_us"], limit=2)
    assert found.to_pylist() == [{"time_us": 12.0, "name": "toy.1024"}, {"time_us": 11.0, "name": "toy.1024"}]
    last = filled.select("trials", columns=["candidate_name"], order=["time_us", "candidate_name"]).to_pylist()[-1]
    assert last == {"candidate_name": "bad"}  # without a time: last, whichever way
    assert len(filled.select("trials", limit=0)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"view": "winer"}, "no view named 'winer'; did you mean winners"),
        ({"view": "trials", "columns": ["tme_us"]}, "no column 'tme_us'; did you mean time_us"),
        ({"view": "trials", "columns": ['a" FROM trials --']}, "no column"),
        ({"view": "trials", "order": ["-tme_us"]}, "did you mean time_us"),
        ({"view": "trials", "filters": [("statu", "=", "x")]}, "did you mean status"),
        ({"view": "trials", "filters": [("status", "~", "x")]}, "no operator '~'; there are = != < <= > >="),
        ({"view": "trials", "filters": [("blocks", "=", "x")]}, "holds lists"),
        ({"view": "trials", "filters": [("time_us", "<", "fast")]}, "fast"),
        ({"view": "trials", "limit": -1}, "give 0 or more"),
    ],
)
def test_a_selection_of_what_there_is_not_says_what_there_is(
    filled: Store, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        filled.select(**arguments)  # type: ignore[arg-type]


def test_a_problem_is_found_by_key_prefix_name_and_label(filled: Store) -> None:
    key = Toy(2048).key
    assert filled.resolve_problem(key) == key
    assert filled.resolve_problem(key[:6]) == key
    assert filled.resolve_problem("toy.2048") == key
    assert filled.resolve_problem("toy 2048 bfloat16") == key


def test_a_name_of_several_problems_lists_them(store: Store) -> None:
    store.append_trials([replace(trial(n=n), name="same") for n in range(1, 13)])
    with pytest.raises(UsageError) as raised:
        store.resolve_problem("same")
    lines = str(raised.value).splitlines()
    assert lines[0] == "'same' may be any of 12 problems; give a key:"
    assert len(lines) == 12
    assert lines[-1] == "  and 2 more"
    assert all(line.split()[1] == "same" for line in lines[1:-1])


def test_a_problem_that_there_is_not_is_a_usage_error(filled: Store) -> None:
    with pytest.raises(UsageError, match=r"no problem 'toy\.2049'; did you mean toy\.2048"):
        filled.resolve_problem("toy.2049")
    with pytest.raises(UsageError, match="no problem ''"):
        filled.resolve_problem("")
    assert filled.targets() == {}
    assert TARGET.key not in str(filled.damage)
