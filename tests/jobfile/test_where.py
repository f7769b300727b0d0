"""`where:` keeps the combinations for which its conditions hold, and can do nothing else."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobfile.problems import Edge, Grid
from tests.jobfile.reading import mistake, read, values
from tunefarm.jobfile.fields import fields_of
from tunefarm.jobfile.where import MAX_CHARACTERS, Condition, ConditionError
from tunefarm.model.dtypes import DType

FIELDS = fields_of(Grid)


def holds(expression: str, **changed: object) -> bool:
    """Whether a condition holds for a grid of 8 x 8, less what is changed."""
    return Condition(expression, FIELDS).holds(vars(Grid(**{"rows": 8, **changed})))


def refusal(expression: str) -> str | None:
    """Why a condition is refused, before it runs or while it does; None if it is not."""
    try:
        holds(expression)
    except ConditionError as error:
        return str(error)
    return None


def is_one_line(refused: str | None) -> bool:
    """Whether a condition was answered, or refused in one line."""
    return refused is None or (refused != "" and "\n" not in refused)


@pytest.mark.parametrize(
    "expression",
    [
        "rows == 8",
        "rows * cols <= 64",
        "rows % tile == 0 && rows / 3 == 2",
        "edge == 'none'",
        'dtype == "bfloat16"',
        "dtype in ['float16', 'bfloat16']",
        "!packed",
        "packed == false || rows < 0",
        "limit == null",
        "limit == null || limit > 3",
        "double(rows) * scale > 7.5",
        "(rows > 1 ? cols : tile) == 8",
        "dtype.endsWith('16')",
        "size(dtype) == 8",
        "-rows < 0",
        "rows\n  > 1",
    ],
)
def test_conditions_are_over_the_problems_fields_words_as_text_and_defaults_included(expression):
    assert holds(expression) is True


def test_a_default_taken_from_another_field_is_seen_as_it_will_be():
    assert values(read("ops: [{op: grid, rows: [4, 8], where: cols == 8}]"), "rows") == [8]


def test_all_conditions_of_a_list_must_hold():
    assert values(read("ops: [{op: line, length: [1, 2, 3, 4], where: [length > 1, length % 2 == 0]}]"), "length") == [
        2,
        4,
    ]


def test_a_condition_can_leave_out_what_would_contradict_itself():
    job = read("ops: [{op: grid, rows: 12, tile: [4, 5, 6], where: rows % tile == 0}]")
    assert values(job, "tile") == [4, 6]


def test_a_condition_that_leaves_nothing_is_a_mistake():
    found = mistake(
        f"ops:\n- op: grid\n  rows: {list(range(1, 9))}\n  tile: 1\n  cols: [1, 2, 3]\n  where: rows > 100\n"
    )
    assert (found.line, found.column, found.key) == (6, 10, "ops[0].where")
    assert found.message.startswith("0 of 24 combinations pass")


@pytest.mark.parametrize(
    ("expression", "mend"),
    [
        ("rows > 1 and cols > 1", "`and` at character 10: write `&&`"),
        ("rows > 1 or cols > 1", "`or` at character 10: write `||`"),
        ("not packed", "`not` at character 1: write `!`"),
        ("packed == True", "write `true`"),
        ("packed == False", "write `false`"),
        ("limit is None", "write `==`"),
        ("limit == None", "write `null`"),
        ("rows = 3", "write `==`"),
        ("rows & 1", "write `&&`"),
        ("rows | 1", "write `||`"),
        ("rows <> 1", "write `!=`"),
        ("rows === 1", "write `==`"),
        ("rows ** 2 > 4", "write the product out"),
        ("rows // 2 > 4", "it begins a comment"),
        ("1 if packed else 2", "write `condition ? this : that`"),
        ("rows == 4k", "`4k` at character 9: numbers are written out here"),
        ("rows in (1, 2)", "a list is written in brackets"),
        ("1 < rows < 9", "a chain is written `1 < m && m < 8`"),
        ("rows * scale > 1.0", "as in `double(m) * alpha`"),
        ("row > 1", "`row` at character 1: no such field; did you mean `rows`?"),
        ("edge == wrap", "the value is written with quotes, 'wrap'"),
        ("nothing_like_it > 1", "no such field; there are `rows`, `cols`"),
        ("dtype == 'bf16'", "`dtype` is one of `float16`, `bfloat16`, `float32`; did you mean `bfloat16`?"),
        ("'wrapp' != edge", "did you mean `wrap`?"),
        ("edge in ['none', 'clap']", "did you mean `clamp`?"),
        ("max(rows, cols) > 1", "no such function; there are"),
        ("edge.upper() == 'A'", "after a dot there may be only"),
        ("rows", "it gives 8, neither true nor false"),
        ("'a' + 'b'", "it gives 'ab', neither true nor false"),
        ("rows / 0 == 1", "division by zero"),
        ("rows * 9223372036854775807 > 1", "overflow"),
        ("rows >", "it ends with `>`: write what should follow, as in `m > 1`"),
        ("rows in", "it ends with `in`: write what should follow"),
        ("(rows > 1", "not an expression: missing ')'"),
        ("rows > 1; cols > 1", "`;` at character 9 has no meaning here"),
        ("rows > 99999999999999999999", "not an expression"),
        ("", "the expression is empty"),
        ("  ", "the expression is empty"),
    ],
)
def test_a_condition_that_is_wrong_is_refused_with_its_mend(expression, mend):
    assert mend in (refusal(expression) or "")


def test_a_mistake_in_a_condition_is_told_at_its_place_even_beside_others():
    found = mistake("ops:\n- op: line\n  length: [1, 2]\n  where:\n  - length > 0\n  - length > 1 and length < 9\n")
    assert (found.line, found.column, found.key) == (6, 5, "ops[0].where[1]")


def test_a_condition_that_fails_for_a_combination_names_it():
    found = mistake("ops: [{op: grid, rows: 8, limit: [4, null], where: limit > 3}]")
    assert found.message.endswith("(with limit=null)")


def test_a_condition_that_fails_where_the_problem_is_invalid_leaves_the_word_to_the_problem():
    found = mistake("ops: [{op: grid, rows: [8, 9], tile: 4, where: rows / (rows - 9) < 100}]")
    assert "does not divide" in found.message


def test_yaml_that_takes_a_leading_exclamation_mark_for_a_tag_is_told_so():
    found = mistake("ops:\n- op: grid\n  rows: 1\n  where: !packed\n")
    assert "text that begins with `!` needs quotes" in found.message
    assert read("ops: [{op: grid, rows: 1, where: '!packed'}]").tasks


HOSTILE = [
    "open('/etc/passwd') != null",
    "__import__('os').system('id') == 0",
    "rows.__class__ == null",
    "dtype.__class__.__mro__[1] == null",
    "eval('1') == 1",
    "getattr(rows, 'real') == 1",
    "env('HOME') != ''",
    "http('http://localhost') != ''",
    "timestamp('2020-01-01T00:00:00Z') > timestamp('2019-01-01T00:00:00Z')",
    "dtype.matches('(a+)+$')",
    "[1].map(rows, rows + rows) == [2]",
    "[1, 2].all(rows, true)",
    "[1].exists(rows, rows == 1)",
    "[1].exists_one(rows, rows == 1)",
    "[1].filter(rows, rows > 0) == [1]",
    "[1] . map (rows, rows) == [1]",
    "[1].\nmap\n(rows, rows) == [1]",
    "[1]./**/map(rows, rows) == [1]",
    "cel.bind(rows, 1, rows == 1)",
    "has(rows.x)",
    "optional.of(1) == optional.of(1)",
    "{'a': 1}.a == 1",
    "dyn(rows) == 8",
    "type(rows) == int",
    '"""x" """ == dtype',
    '"""a"b""" + [1].map(rows, rows) + "',
    "r'\\' == 'a'",
    "b'a' == dtype",
    "'\\x41' == 'A'",
    "`rows` == 8",
    "rows == 8 # comment",
    "\u0440ows == 8",
    "rows == 8\x00",
    "@in(rows)",
    "1u < rows",
]


@pytest.mark.parametrize("expression", HOSTILE)
def test_nothing_but_operators_fields_and_a_few_functions_reaches_the_evaluator(expression):
    assert refusal(expression)


_GUARDED = """
import sys
from tests.jobfile.test_where import Condition, ConditionError, FIELDS, HOSTILE, holds
import cel
holds("rows == 8 && dtype.startsWith('b')")
seen = []
sys.addaudithook(lambda event, args: seen.append(event))
for expression in HOSTILE:
    for run in (lambda: holds(expression), lambda: cel.compile(expression).execute({"rows": 8, "dtype": "x"})):
        try:
            run()
        except (ConditionError, ValueError, RuntimeError, TypeError, ArithmeticError, LookupError):
            pass
doors = {"open", "os", "socket", "subprocess", "exec", "compile", "ctypes", "shutil"}
reached = {event for event in seen if event.split(".")[0] in doors}
sys.exit(f"reached {sorted(reached)}" if reached else 0)
"""


def test_hostile_conditions_open_no_file_no_socket_and_run_no_python_even_with_the_guard_left_out():
    ran = subprocess.run([sys.executable, "-c", _GUARDED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_an_audit_hook_would_have_seen_a_file_or_socket_opened():
    seen: list[str] = []
    active = True
    sys.addaudithook(lambda event, _: seen.append(event) if active else None)
    with Path(os.devnull).open(), socket.socket():
        active = False
    assert {"open", "socket.__new__"} <= set(seen)


def test_the_length_of_an_entrys_conditions_is_bounded():
    long = " && ".join(["length > 0"] * 200)
    assert len(long) > MAX_CHARACTERS
    assert "over the limit of 1,000" in mistake(f"ops: [{{op: line, length: 1, where: {long}}}]").message
    half = long[: MAX_CHARACTERS // 2]
    halves = f"[{half[: half.rindex('&&')]}, {half[: half.rindex('&&')]}, {half[: half.rindex('&&')]}]"
    assert "over the limit of 1,000" in mistake(f"ops: [{{op: line, length: 1, where: {halves}}}]").message


@pytest.mark.parametrize(
    "deep", ["(" * 400 + "rows" + ")" * 400, "!" * 900 + "packed", "-" * 900 + "1", "[" * 400 + "]" * 400]
)
def test_deep_conditions_end_in_an_answer_or_a_refusal(deep):
    assert is_one_line(refusal(deep))


@settings(deadline=None)
@given(st.text(max_size=80) | st.from_regex(r"[a-z0-9_ ()\[\]<>=!&|+\-*/%.,?:'\"]{0,80}", fullmatch=True))
def test_any_text_is_answered_or_refused(text):
    assert is_one_line(refusal(text))


_PIECES = [
    "rows",
    "cols",
    "tile",
    "packed",
    "edge",
    "'none'",
    "1",
    "2.5",
    "true",
    "null",
    "[1, 2]",
    "size(dtype)",
    "!",
    "-",
]
_OPERATORS = ["+", "-", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||", "in", ")", "(", "? 1 :", ","]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_PIECES + _OPERATORS), max_size=12).map(" ".join))
def test_any_text_of_the_languages_own_words_is_answered_or_refused(text):
    assert is_one_line(refusal(text))


@settings(deadline=None)
@given(
    rows=st.integers(1, 64),
    bound=st.integers(-5, 70),
    edge=st.sampled_from(list(Edge)),
    dtype=st.sampled_from(list(DType)),
    packed=st.booleans(),
)
def test_conditions_agree_with_python(rows, bound, edge, dtype, packed):
    expression = f"(rows * 3 - 1 >= {bound} && !packed) || edge == 'wrap' || rows % 7 in [1, 2] && dtype != 'float32'"
    expected = (rows * 3 - 1 >= bound and not packed) or edge == "wrap" or (rows % 7 in [1, 2] and dtype != "float32")
    assert holds(expression, rows=rows, edge=edge, dtype=dtype, packed=packed) is expected
