"""Lists multiply, zips pair, conditions filter; the count is known before any problem is made."""

import itertools

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobfile.problems import PROBLEM_TYPES, Edge, Grid, Line
from tests.jobfile.reading import mistake, mistakes, read, values
from tunefarm.jobfile import DEFAULT_LIMIT


def written(**job: object) -> str:
    """A job file of plain values."""
    return yaml.safe_dump(job, sort_keys=False)


sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True)


@settings(deadline=None)
@given(
    rows=sizes,
    cols=sizes,
    edges=st.lists(st.sampled_from([*map(str, Edge)]), min_size=1, unique=True),
    bound=st.integers(1, 150),
)
def test_the_problems_are_the_product_filtered_by_the_condition_in_the_order_of_the_file(rows, cols, edges, bound):
    expected = [
        Grid(rows=r, cols=c, edge=Edge(e))
        for r, e, c in itertools.product(rows, edges, cols)
        if r * c <= bound and (e != "wrap" or r > c)
    ]
    entry = {"op": "grid", "rows": rows, "edge": edges, "cols": cols}
    content = written(ops=[{**entry, "where": [f"rows * cols <= {bound}", "edge != 'wrap' || rows > cols"]}])
    if expected:
        job = read(content)
        assert [task.problem for task in job.tasks] == expected
        assert [task.problem for task in read(content).tasks] == expected
    else:
        total = len(rows) * len(cols) * len(edges)
        assert mistake(content).message.startswith(f"0 of {total} combinations pass")


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5, unique=True), tiles=sizes
)
def test_a_zip_is_one_axis_of_pairs(pairs, tiles):
    rows, cols = ([pair[i] for pair in pairs] for i in (0, 1))
    entry = {"op": "grid", "zip": {"rows": rows, "cols": cols}, "scale": [float(t) for t in tiles]}
    expected = [(r, c, float(t)) for (r, c), t in itertools.product(pairs, tiles)]
    assert values(read(written(ops=[entry])), "rows", "cols", "scale") == expected


@settings(deadline=None)
@given(rows=sizes)
def test_a_zip_of_one_field_is_a_list(rows):
    zipped, listed = (read(written(ops=[{"op": "grid", **axis}])) for axis in ({"zip": {"rows": rows}}, {"rows": rows}))
    assert zipped.tasks == listed.tasks


@settings(deadline=None)
@given(rows=sizes, cols=sizes)
def test_zips_of_one_field_each_multiply_as_lists_do(rows, cols):
    zipped = read(written(ops=[{"op": "grid", "zip": [{"rows": rows}, {"cols": cols}]}]))
    assert zipped.tasks == read(written(ops=[{"op": "grid", "rows": rows, "cols": cols}])).tasks


def test_several_zips_multiply_with_each_other():
    job = read("ops: [{op: grid, zip: [{rows: [4, 8], cols: [1, 2]}, {scale: [1, 2], packed: [true, false]}]}]")
    assert values(job, "rows", "cols", "scale", "packed") == [
        (4, 1, 1.0, True),
        (4, 1, 2.0, False),
        (8, 2, 1.0, True),
        (8, 2, 2.0, False),
    ]


def test_the_last_axis_of_the_file_varies_fastest():
    assert values(read("ops: [{op: grid, cols: [1, 2], rows: [3, 4]}]"), "rows", "cols") == [
        (3, 1),
        (4, 1),
        (3, 2),
        (4, 2),
    ]


@pytest.mark.parametrize(
    ("entry", "key", "message"),
    [
        ("zip: {rows: [1, 2], cols: [1]}", "zip", "must be of one length, but `rows` has 2, `cols` has 1"),
        ("zip: [{rows: [1, 2], cols: [1]}]", "zip[0]", "must be of one length"),
        ("zip: {rows: [1]}, rows: 3", "zip.rows", "`rows` is given twice, first on line 1"),
        ("rows: 1, zip: [{cols: [1]}, {cols: [2]}]", "zip[1].cols", "`cols` is given twice"),
        ("rows: 1, zip: {}", "zip", "an empty zip"),
        ("rows: 1, zip: []", "zip", "an empty list"),
        ("rows: 1, zip: 3", "zip", "expected a mapping"),
        ("zip: {rows: 4}", "zip.rows", "expected a list, got `4`"),
        ("zip: {rows: []}", "zip.rows", "an empty list"),
        ("zip: {rosw: [1]}", "zip.rosw", "did you mean `rows`?"),
        ("rows: 1, zip: {edge: [wrapp]}", "zip.edge[0]", "did you mean `wrap`?"),
        (
            "zip: {rows: [4, 6], tile: [4, 4]}",
            "zip.tile[1]",
            "4 does not divide rows, which is 6 (with rows=6, tile=4)",
        ),
    ],
)
def test_a_zip_that_is_wrong_is_told_at_its_place(entry, key, message):
    found = mistake(f"ops: [{{op: grid, {entry}}}]")
    assert found.key == f"ops[0].{key}"
    assert message in found.message


def exploding(**_: object) -> None:
    raise AssertionError("a problem was made")


@pytest.fixture
def unmade(monkeypatch):
    """Operations whose problems fail the test if one is made."""
    for problem_type in (Grid, Line):
        monkeypatch.setattr(problem_type, "__post_init__", exploding)
    return PROBLEM_TYPES


def test_a_product_over_the_limit_is_refused_with_its_number_before_any_problem_is_made(unmade):
    axis = list(range(1, 1001))
    found = mistake(f"ops:\n  - {{op: grid, rows: {axis}, cols: {axis}}}", problem_types=unmade)
    assert (found.line, found.key) == (2, "ops[0]")
    assert "multiply to 1,000,000 combinations, over the limit of 100,000" in found.message
    assert "`--limit N`" in found.message


def test_a_million_by_a_million_is_refused_before_any_problem_is_made(unmade):
    axis = list(range(1, 10_001))
    fields = ", ".join(f"{name}: {axis}" for name in ("rows", "cols", "tile"))
    found = mistake(f"ops: [{{op: grid, {fields}}}]", problem_types=unmade)
    assert "multiply to 1,000,000,000,000 combinations" in found.message


def test_counts_past_all_measure_are_told_by_their_magnitude(unmade):
    axis = list(range(1, 5001))
    names = ("rows", "cols", "tile", "limit", "scale")
    found = mistake(f"ops: [{{op: grid, {', '.join(f'{n}: {axis}' for n in names)}}}]", problem_types=unmade)
    assert "multiply to over 10^18 combinations" in found.message


def test_entries_together_over_the_limit_are_refused_with_the_sum(unmade):
    found = mistake(
        "ops:\n- {op: line, length: [1, 2, 3]}\n- {op: line, length: [4, 5]}\n", limit=4, problem_types=unmade
    )
    assert (found.line, found.key) == (2, "ops")
    assert "all entries together have 5 combinations, over the limit of 4" in found.message


def test_the_limit_counts_combinations_before_conditions():
    content = "ops: [{op: line, length: [1, 2, 3], where: length > 2}]"
    assert mistakes(content, limit=2)
    assert len(read(content, limit=3).tasks) == 1


def test_the_limit_can_be_raised():
    content = f"ops: [{{op: line, length: {list(range(1, 12))}}}]"
    assert mistakes(content, limit=10)
    assert len(read(content, limit=11).tasks) == 11


def test_the_default_limit_is_what_its_message_says():
    assert DEFAULT_LIMIT == 100_000
