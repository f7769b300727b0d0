"""Mistakes: all at once, each with its place, what is wrong, and how to mend it."""

import pytest

from tests.jobfile.reading import mistake, mistakes
from tunefarm.jobfile.mistakes import MAX_MISTAKES
from tunefarm.model.errors import JobError

FIVE = """\
job: five
serch: {compile: false}
ops:
  - op: grid
    rows: 1e3
    dtype: bf16
  - op: lin
    length: 4
measure:
  cache: cool
"""


def test_five_mistakes_are_reported_as_five_in_file_order():
    found = mistakes(FIVE)
    assert [(m.line, m.column, m.key, m.message) for m in found] == [
        (2, 1, "serch", "unknown key; did you mean `search`?"),
        (5, 11, "ops[0].rows", "expected a whole number, got `1e3`; write 1000"),
        (6, 12, "ops[0].dtype", "`bf16` is none of `float16`, `bfloat16`, `float32`; did you mean `bfloat16`?"),
        (7, 9, "ops[1].op", "no operation `lin`; there are `grid`, `line`; did you mean `line`?"),
        (10, 10, "measure.cache", "`cool` is none of `cold`, `hot`; did you mean `cold`?"),
    ]


def test_the_error_ends_in_one_line_a_mistake_with_path_line_and_column():
    error = JobError(mistakes(FIVE))
    head, *lines = str(error).splitlines()
    assert head == "5 mistakes in the job file"
    assert len(lines) == 5
    assert all("sample.yaml:" in line for line in lines)
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("entry", "key", "message"),
    [
        ("rows: ^0", "rows", "0 is below 1, the least allowed"),
        ("rows: ^2M", "rows", "2097152 is above 1048576, the most allowed"),
        ("rows: [1, ^-2]", "rows[1]", "-2 is below 1, the least allowed"),
        ("rows: ^[]", "rows", "an empty list leaves nothing to tune; give at least one value"),
        ("rows: ^", "rows", "expected a whole number, got nothing"),
        ("rows: ^true", "rows", "expected a whole number, got `true`"),
        ("rows: ^1.5", "rows", "expected a whole number, got `1.5`"),
        ("rows: [^[1, 2]]", "rows[0]", "expected a whole number, got a list"),
        ("rows: ^{a: 1}", "rows", "expected a whole number, got a mapping"),
        ("rows: ^four", "rows", "expected a whole number, such as 4096 or 4k; got `four`"),
        ("rows: ^'8'", "rows", "expected a whole number, got the quoted text `8`; remove the quotes"),
        ("rows: ^'1.50'", "rows", "expected a whole number, got the quoted text `1.50`; remove the quotes"),
        ("rows: ^1.50", "rows", "expected a whole number, got `1.50`"),
        ("rows: ^4kk", "rows", "not in `kk`; did you mean `4k`?"),
        ("rows: 1, packed: ^'true'", "packed", "expected true or false, got the quoted text `true`; remove the quotes"),
        ("rows: 1, scale: ^'2.0'", "scale", "expected a number, got the quoted text `2.0`; remove the quotes"),
        ("rows: ^4kb", "rows", "a size ends in k, K, M, G, KiB, MiB, GiB or in a digit, not in `kb`"),
        ("rows: ^4MB", "rows", "did you mean `4MiB`?"),
        ("rows: ^99999999999999999999", "rows", "99999999999999999999 needs over 64 bits"),
        ("rows: 1, packed: ^yes", "packed", "expected true or false, got `yes`; write true"),
        ("rows: 1, packed: ^0", "packed", "expected true or false, got `0`"),
        ("rows: 1, scale: ^true", "scale", "expected a number, got `true`"),
        ("rows: 1, scale: ^.inf", "scale", "expected a finite number, got `.inf`"),
        ("rows: 1, scale: ^.nan", "scale", "expected a finite number, got `.nan`"),
        ("rows: 1, scale: ^1e999", "scale", "expected a finite number, got `1e999`"),
        ("rows: 1, edge: ^null", "edge", "expected a word, got nothing; write `none`"),
        ("rows: 1, edge: ^3", "edge", "expected one of `none`, `wrap`, `clamp`, got `3`"),
        ("rows: 1, edge: ^wrapp", "edge", "did you mean `wrap`?"),
        ("rows: 1, dtype: ^half", "dtype", "did you mean `float16`?"),
        ("rows: 1, dtype: ^torch.float16", "dtype", "did you mean `float16`?"),
        ("rows: 1, dtype: ^FP32", "dtype", "did you mean `float32`?"),
        ("rows: 1, limit: ^x", "limit", "expected a whole number"),
        ("rows: 1, ^col: 4", "col", "unknown key; did you mean `cols`?"),
        ("rows: 1, ^Tile: 4", "Tile", "unknown key; did you mean `tile`?"),
        ("rows: 1, ^cache: hot", "cache", "unknown key here; it belongs under `measure:`"),
        ("rows: 1, ^compile: false", "compile", "unknown key here; it belongs under `search:`"),
        ("rows: 1, name: ^8", "name", "expected text, got `8`; put it in quotes"),
        ("rows: 1, name: ^''", "name", "expected 1 to 100 printable characters"),
        ('rows: 1, name: ^"a\\nb"', "name", "expected 1 to 100 printable characters"),
        ("rows: 1, search: ^3", "search", "expected a mapping (`key: value`), got `3`"),
        ("rows: 1, search: {engines: [^cudn]}", "search.engines[0]", "did you mean `cudnn`?"),
        ("rows: 1, search: {engines: ^[]}", "search.engines", "an empty list"),
        ("rows: 1, search: {^seed: 1}", "search.seed", "unknown key here; it belongs under `measure:`"),
        ("rows: 1, measure: {^version: 2}", "measure.version", "unknown key"),
        ("rows: 1, where: ^true", "where", "expected an expression, got `true`; put it in quotes"),
    ],
)
def test_a_wrong_value_is_told_at_its_place(entry, key, message):
    line = f"  - {{op: grid, {entry}}}"
    found = mistake("ops:\n" + line.replace("^", ""))
    assert (found.line, found.column, found.key) == (2, line.index("^") + 1, f"ops[0].{key}")
    assert message in found.message


def test_every_missing_field_is_told_with_its_meaning():
    found = mistakes("ops:\n  - {op: grid}\n  - op: line\n")
    assert [(m.line, m.key, m.message) for m in found] == [
        (2, "ops[0]", "`rows` is missing (rows of the grid)"),
        (3, "ops[1]", "`length` is missing (length)"),
    ]


def test_a_misspelt_field_is_not_also_told_as_missing():
    assert mistake("ops: [{op: grid, rwos: 4}]").message == "unknown key; did you mean `rows`?"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("job: x", "`ops` is missing"),
        ("opps: [{op: line, length: 1}]", "did you mean `ops`?"),
        ("ops: []", "an empty list leaves nothing to tune"),
        ("ops:", "expected a list, got nothing"),
        ("ops: {op: line, length: 1}", "expected a list, got a mapping"),
        ("ops: [line]", "expected a mapping with `op:` and the operation's fields, got `line`"),
        ("ops: [{length: 1}]", "`op` is missing: one of `grid`, `line`"),
        ("ops: [{op: [line], length: 1}]", "expected one of `grid`, `line`, got a list"),
        ("- op: line", "expected a mapping (`key: value`), got a list"),
        ("just text", "expected a mapping (`key: value`), got `just text`"),
        ("job: [a]\nops: [{op: line, length: 1}]", "expected text, got a list"),
    ],
)
def test_a_wrong_outline_is_told(content, message):
    assert message in mistake(content).message


def test_a_contradiction_is_told_at_the_value_that_makes_it_with_the_whole_combination():
    found = mistake(
        """\
        ops:
          - op: grid
            rows: [8, 12]
            tile: [4,
                   8]
            cols: 3
        """
    )
    assert (found.line, found.column, found.key) == (5, 12, "ops[0].tile[1]")
    assert found.message == (
        "8 does not divide rows, which is 12 (with rows=12, tile=8)"
        "; change the lists, or leave such combinations out by a condition under `where:`"
    )


def test_many_contradictions_of_an_entry_are_one_mistake_with_their_number():
    found = mistake(f"ops: [{{op: grid, rows: 7, tile: {list(range(1, 1001))}}}]")
    assert found.message.startswith(
        "2 does not divide rows, which is 7 (with tile=2), and 997 combinations more can't be"
    )


def test_a_contradiction_without_a_field_of_the_entry_is_told_at_the_entry():
    found = mistake("ops:\n  - {op: grid, rows: 1M, cols: 1M}")
    assert (found.line, found.column, found.key) == (2, 5, "ops[0]")
    assert "over the limit" in found.message


def test_contradictions_are_told_together_with_other_entries_mistakes():
    assert len(mistakes("ops: [{op: grid, rows: 3, tile: 2}, {op: line}, {op: line, length: x}]")) == 3


def test_the_number_of_mistakes_told_is_bounded():
    found = mistakes(f"ops: [{{op: line, length: [{', '.join(['x'] * 5000)}]}}]")
    assert len(found) == MAX_MISTAKES
    assert found[-1].message.endswith("(there may be more mistakes: 100 are told at a time)")


def test_a_file_name_that_makes_no_name_for_a_job_is_told(tmp_path):
    from tests.jobfile.problems import PROBLEM_TYPES
    from tunefarm.jobfile import read_job

    path = tmp_path / ("x" * 150 + ".yaml")
    path.write_text("ops: [{op: line, length: 1}]")
    with pytest.raises(JobError, match="give it one by `job:`"):
        read_job(path, problem_types=PROBLEM_TYPES)
