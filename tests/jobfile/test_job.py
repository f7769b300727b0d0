"""What a right job file becomes."""

import pytest

from tests.jobfile.problems import Edge, Grid, Line
from tests.jobfile.reading import mistake, read, values
from tunefarm.model.dtypes import DType
from tunefarm.model.job import Cache, Protocol, Search


def test_an_entry_of_lone_values_is_one_problem_with_the_operations_defaults():
    job = read("ops: [{op: grid, rows: 8}]")
    (task,) = job.tasks
    assert task.problem == Grid(rows=8)
    assert task.search == Search()
    assert task.protocol == Protocol()


def test_every_kind_of_field_is_read():
    job = read(
        """
        ops:
          - op: grid
            rows: 4k
            cols: 0x10
            scale: 1e-3
            edge: clamp
            dtype: float16
            packed: true
            limit: null
        """
    )
    expected = Grid(rows=4096, cols=16, scale=0.001, edge=Edge.CLAMP, dtype=DType.FLOAT16, packed=True, limit=None)
    (problem,) = [task.problem for task in job.tasks]
    assert problem == expected
    assert [type(v) for v in vars(problem).values()] == [type(v) for v in vars(expected).values()]


def test_a_whole_number_for_a_fraction_has_the_key_of_the_fraction():
    job = read("ops: [{op: grid, rows: 8, scale: 2}]")
    assert job.tasks[0].problem.key == Grid(rows=8, scale=2.0).key


def test_a_field_that_may_be_nothing_takes_null_among_values():
    assert values(read("ops: [{op: grid, rows: 1, limit: [null, 4, ~]}]"), "limit") == [None, 4]


def test_the_job_is_named_by_its_file_unless_it_says_otherwise():
    assert read("ops: [{op: line, length: 1}]").name == "sample"
    assert read("job: mine\nops: [{op: line, length: 1}]").name == "mine"


def test_a_task_is_named_by_its_entry_or_else_by_its_problem():
    job = read("ops: [{op: line, name: model.layer, length: [1, 2]}, {op: line, length: 3}]")
    assert [task.name for task in job.tasks] == ["model.layer", "model.layer", "line 3"]


def test_the_heaviest_come_first_and_of_duplicates_the_weight_of_the_heaviest_counts():
    job = read(
        """
        ops:
          - {op: line, length: [1, 2]}
          - {op: line, length: 3, weight: 1k}
          - {op: line, length: 2, weight: 5}
          - {op: line, length: 4, weight: 2000}
        """
    )
    assert [(task.problem.length, task.weight) for task in job.tasks] == [(4, 2000), (3, 1024), (2, 5), (1, 1)]


@pytest.mark.parametrize("weight", ["0", "-1", "0.5", "true", "[1, 2]", "heavy"])
def test_a_weight_is_one_whole_number_from_1(weight):
    assert "weight" in str(mistake(f"ops: [{{op: line, length: 1, weight: {weight}}}]"))


def test_settings_of_the_job_reach_every_task_and_an_entrys_own_go_over_them():
    job = read(
        """
        search: {compile: false, engines: torch}
        measure: {cache: hot, max_workspace: 256MiB}
        ops:
          - {op: line, length: 1}
          - {op: line, length: 2, search: {compile: true}, measure: {seed: 7}}
        """
    )
    first, second = job.tasks
    assert first.search == Search(engines=("torch",), compile=False)
    assert first.protocol == Protocol(cache=Cache.HOT, max_workspace=2**28)
    assert second.search == Search(engines=("torch",), compile=True)
    assert second.protocol == Protocol(cache=Cache.HOT, max_workspace=2**28, seed=7)


def test_engines_are_a_set_so_their_order_changes_no_key():
    a, b = (
        read(f"search: {{engines: {e}}}\nops: [{{op: line, length: 1}}]") for e in ("[torch, cudnn]", "[cudnn, torch]")
    )
    assert a.tasks[0].search.key == b.tasks[0].search.key == Search().key


def test_equal_problems_with_equal_settings_are_dropped_and_counted():
    job = read(
        """
        ops:
          - {op: line, name: first, length: [1, 2, 1]}
          - {op: line, name: second, length: [2, 3]}
          - {op: line, name: other-search, length: 2, search: {dynamic: true}}
          - {op: line, name: other-protocol, length: 2, measure: {seed: 1}}
          - {op: line, name: said-default, length: 2, measure: {seed: 0}}
        """
    )
    assert [(t.name, t.problem) for t in job.tasks] == [
        ("first", Line(length=1)),
        ("first", Line(length=2)),
        ("second", Line(length=3)),
        ("other-search", Line(length=2)),
        ("other-protocol", Line(length=2)),
    ]
    assert job.duplicates == 3


def test_a_problem_written_with_and_without_a_derived_default_is_one():
    job = read("ops: [{op: grid, rows: 8}, {op: grid, rows: 8, cols: 8}]")
    assert (len(job.tasks), job.duplicates) == (1, 1)


@pytest.mark.parametrize(("text", "count"), [("length: 5", 1), ("length: [5, 6]", 2)])
def test_a_lone_value_is_a_list_of_one(text, count):
    assert len(read(f"ops: [{{op: line, {text}}}]").tasks) == count
