"""Whatever a command is given, it answers in order and leaves no half of anything. `scripts/fuzz` tries thousands."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.fuzzing import EXAMPLES, JOBS, ODD, ask, broken, files_of, mutated, seeds, sql, words
from tests.report.make import TARGET, small_sweep
from tunefarm.cli.app import VERBS
from tunefarm.cli.query import query
from tunefarm.farm.bulletin import Bulletin
from tunefarm.farm.progress import SweepState
from tunefarm.farm.roster import Roster
from tunefarm.farm.status import Ended
from tunefarm.store import Store

fuzzing = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
STATE = SweepState(2, 1, 20, 10, 1, 8, 1, 0, 0, 8, ("mlp.up cudnn:eng4 1.2x",), 3.0, 3.0, "measure")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store of a small sweep, and what it tells of itself."""
    path = tmp_path_factory.mktemp("fuzz") / "store"
    store = Store.open(path, create=True)
    store.put_target(TARGET)
    store.append_trials(small_sweep())
    bulletin = Bulletin(store, "20300101T000000-abcdef", "test", Roster())
    bulletin.update(STATE)
    bulletin.open()
    bulletin.close(Ended.FINISHED)
    return path


@pytest.mark.parametrize("job", JOBS)
@fuzzing
@given(seed=seeds, changes=st.integers(1, 8))
def test_a_changed_job_is_a_job_or_told_with_its_mistakes(job, seed, changes, tmp_path):
    path, store = tmp_path / "job.yaml", tmp_path / "store"
    path.write_bytes(mutated(JOBS[job], seed, changes).encode("utf-8", "surrogatepass"))
    answer = ask("sweep", str(path), "--store", str(store), "--dry-run", "--limit", "3000")
    assert answer.code in (0, 2)
    if answer.code == 2:
        assert answer.out == ""
        assert "job.yaml" in answer.err or "include" in answer.err
    assert not store.exists()


@fuzzing
@given(seed=seeds, changes=st.integers(1, 20))
def test_a_job_file_of_damaged_bytes_is_told_too(seed, changes, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(broken(JOBS["quickstart"].encode(), seed, changes))
    assert ask("sweep", str(path), "--store", str(tmp_path / "store"), "--dry-run", "--limit", "3000").code in (0, 2)


@fuzzing
@given(
    condition=st.lists(
        st.sampled_from(
            [
                "m",
                "n",
                "k",
                "dtype",
                "batch",
                "==",
                "<",
                "&&",
                "||",
                "!",
                "(",
                ")",
                "1",
                "'a'",
                "?",
                ":",
                "in",
                "[1, 2]",
                "size(",
                "matches('(a+)+$')",
                "has(",
                ".all(x, x)",
                "+",
                "/ 0",
                "%",
                "null",
                "9223372036854775807",
            ]
        )
        | words,
        min_size=1,
        max_size=9,
    ).map(" ".join)
)
def test_any_condition_is_one_or_told(condition, tmp_path):
    path = tmp_path / "job.yaml"
    entry = {"op": "matmul", "m": [1, 8], "n": 64, "k": 32, "where": condition}
    path.write_text(json.dumps({"ops": [entry]}), encoding="utf-8")
    assert ask("sweep", str(path), "--store", str(tmp_path / "store"), "--dry-run").code in (0, 2)


@fuzzing
@given(
    verb=st.sampled_from([v for v in VERBS if v not in ("sweep", "doctor", "keygen")]) | words,
    args=st.lists(
        st.sampled_from(
            [
                "--store",
                "--json",
                "--limit",
                "--key",
                "--sql",
                "--format",
                "--columns",
                "--help",
                "-h",
                "--debug",
                "--version",
                "--",
                "-",
                "--output",
                "--trust",
                "--unknown",
                "--=",
                "--watch=",
            ]
        )
        | words,
        max_size=5,
    ),
)
def test_any_arguments_are_a_command_or_told(verb, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUNEFARM_STORE", raising=False)
    ask(*(word.replace("\0", "") for word in (verb, *args) if word != "--debug"))  # no process can be given a NUL


FILTERS = sorted({o for p in query.params for o in p.opts} - {"--store", "--sql", "--output", "--help"})


@fuzzing
@given(
    options=st.lists(
        st.tuples(st.sampled_from(FILTERS), words | st.sampled_from(["time_us", "-name", "name,name", "json", "3"])),
        max_size=4,
    )
)
def test_any_filters_are_answered_or_told(options, filled):
    before = files_of(filled)
    flags = {"--winners", "--all"}
    ask(
        "query",
        "--store",
        str(filled),
        *(word for name, value in options for word in ([name] if name in flags else [name, value])),
    )
    assert files_of(filled) == before


@fuzzing
@given(statement=sql, form=st.sampled_from(["json", "csv", "table"]))
def test_any_sql_is_answered_or_told(statement, form, filled):
    before = files_of(filled)
    answer = ask("query", "--store", str(filled), "--format", form, "--sql", statement)
    assert "root:" not in answer.out
    assert files_of(filled) == before


@fuzzing
@given(problem=words)
def test_any_problem_is_shown_or_told(problem, filled):
    ask("show", "--store", str(filled), "--json", "--", problem)


def replaced(path, seed, changes):
    whole = path.read_bytes()
    path.write_bytes(broken(whole, seed, changes))
    return whole


@fuzzing
@given(seed=seeds, changes=st.integers(1, 6), as_json=st.booleans())
def test_any_record_of_a_sweep_is_told_or_named(seed, changes, as_json, filled):
    (path,) = (filled / "status").glob("*.json")
    whole = replaced(path, seed, changes)
    try:
        answer = ask("status", "--store", str(filled), *(["--json"] if as_json else []))
    finally:
        path.write_bytes(whole)
    assert answer.code in (0, 4)
    assert (answer.code == 4) == ("can't be read" in answer.err)
    if as_json:
        json.loads(answer.out)


@fuzzing
@given(seed=seeds, changes=st.integers(1, 6))
def test_any_damaged_target_is_named_and_hides_nothing_else(seed, changes, filled):
    (path,) = (path for path in filled.rglob("*.json") if TARGET.key in path.name)
    whole = replaced(path, seed, changes)
    try:
        shown = ask("show", "--store", str(filled), "huge")
        listed = ask("query", "--store", str(filled), "--sql", "SELECT * FROM targets", "--format", "json")
    finally:
        path.write_bytes(whole)
    assert shown.code in (0, 4)
    assert "huge" in shown.out
    assert listed.code in (0, 4)


@pytest.mark.parametrize(
    "args", [["\x1b[2J"], ["verify", "\x1b[2J"], ["show", "\x1b[2J", "\x1b[2J"], ["query", "--\x1b[2J"]]
)
def test_a_wrong_word_can_do_nothing_to_a_terminal(args):
    answer = ask(*args)
    assert answer.code in (2, 4, 5)


@pytest.mark.parametrize("word", ODD)
@pytest.mark.parametrize("option", ["--name", "--columns", "--sort", "--problem", "--sql"])
def test_every_odd_word_is_told(word, option, filled):
    ask("query", "--store", str(filled), option, word)
