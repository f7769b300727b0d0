"""YAML as job files have it: a small, safe part of YAML 1.2, and one clear error for everything else."""

import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.jobfile.problems import PROBLEM_TYPES
from tests.jobfile.reading import mistake, mistakes, read, values
from tunefarm.jobfile import read_job
from tunefarm.jobfile.mistakes import MistakeLog
from tunefarm.jobfile.scalars import UNITS, WrittenFloat, parse_size, resolve_plain
from tunefarm.jobfile.yaml_source import MAX_DEPTH, MAX_NODES, read_document
from tunefarm.model.errors import JobError

GOOD = "ops: [{op: line, length: 1}]\n"


def mistake_of_file(path: Path) -> str:
    """The message of the only mistake of a file, which names the file as it was asked for."""
    with pytest.raises(JobError) as caught:
        read_job(path, problem_types=PROBLEM_TYPES)
    (found,) = caught.value.mistakes
    assert found.path == str(path)
    return found.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-7", -7),
        ("+7", 7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("n", "n"),
        ("true", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("none", "none"),
        ("2024-01-01", "2024-01-01"),
        ("\u0661", "\u0661"),
        ("4k", "4k"),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    resolved = resolve_plain(text)
    assert resolved == value
    assert type(resolved) is (WrittenFloat if isinstance(value, float) else type(value))


def test_not_a_number_is_a_fraction():
    assert math.isnan(resolve_plain(".nan"))


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_size_written_with_a_unit_is_read_back(count, unit):
    assert parse_size(f"{count}{unit}") == count * UNITS[unit]


@settings(deadline=None)
@given(st.integers(0, 2**40))
@example(2**20)
def test_a_size_means_the_same_in_every_way_to_write_it(size):
    ways = [str(size), f"0x{size:x}", *(f"{size // unit}{name}" for name, unit in UNITS.items() if size % unit == 0)]
    jobs = [read(f"measure: {{max_workspace: {way}}}\n{GOOD}") for way in ways]
    assert {job.tasks[0].protocol.max_workspace for job in jobs} == {size}


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_refused_with_a_reason(text):
    try:
        assert parse_size(text) >= 0
    except ValueError as error:
        assert "size" in str(error) or "number" in str(error)  # noqa: PT017  a text may be a size, or not


@pytest.mark.parametrize(
    ("content", "line", "column", "message"),
    [
        (f"{GOOD}job: &name x\n", 2, 6, "anchors (`&name`) are not allowed"),
        (f"{GOOD}job: *name\n", 2, 6, "aliases (`*name`) are not allowed"),
        (
            f"{GOOD}job: !!python/object/apply:os.system [id]\n",
            2,
            6,
            "tags (`tag:yaml.org,2002:python/object/apply:os.system`)",
        ),
        (f"{GOOD}job: !custom x\n", 2, 6, "tags (`!custom`) are not allowed"),
        (f"{GOOD}job: !!str x\n", 2, 6, "tags ("),
        (f"{GOOD}job: a\njob: b\n", 3, 1, "the key `job` is there twice, first on line 2; remove one"),
        (f"{GOOD}<<: {{job: a}}\n", 2, 1, "unknown key"),
        (f"{GOOD}1: a\n", 2, 1, "unknown key"),
        (f"{GOOD}---\n{GOOD}", 2, 1, "a second document begins"),
        (f"{GOOD}? [a, b]\n: c\n", 2, 3, "a list or mapping stands where a key belongs"),
        ("ops:\n\t- op: line\n", 2, 1, "a tab: YAML indents with spaces only"),
        ("ops:\n  - op: line\n  \tlength: 1\n", 3, 3, "a tab: YAML indents with spaces only"),
        ("ops: [{op: line, length: 1}\n", 2, 1, "YAML syntax"),
        ("ops: 'x\n", 2, 1, "YAML syntax"),
        (f"{GOOD}job: @me\n", 2, 6, "put text that begins with `@` in quotes"),
        (f"{GOOD}job: a: b\n", 2, 7, "put text that holds a colon in quotes"),
        (f"{GOOD}job: a\0b\n", 2, 7, "the character U+0000 is not allowed in YAML"),
        (f"{GOOD}job: a\x07b\n", 2, 7, "the character U+0007 is not allowed in YAML"),
        (f"{GOOD}job: é\n".encode("latin-1"), 2, 6, "not UTF-8 (byte 0xe9); save the file as UTF-8"),
        (GOOD.encode("utf-16"), 1, 1, "not UTF-8 (byte 0xff)"),
        ("", 1, 1, "the file is empty"),
        ("# only a comment\n", 1, 1, "the file is empty"),
        ("---\n...\n", 1, 1, "the file is empty"),
        (f"ops: [{{op: line, length: {'1' * 100_000}}}]", 1, 26, "a number of 100,000 characters"),
        (f"ops: [{{op: line, length: 0x{'f' * 100_000}}}]", 1, 26, "a number of 100,002 characters"),
        ("ops: " + "[" * 500_000, 1, 1005, "exceeded maximum nesting depth"),
        ("{a: " * 200_000, 1, 4 * MAX_DEPTH + 1, f"nested deeper than {MAX_DEPTH} levels"),
        ("- " * 400_000, 1, 2 * MAX_DEPTH + 1, f"nested deeper than {MAX_DEPTH} levels"),
        ("#" * (2**20 + 1), 1, 1, "over 1,048,576 bytes"),
        ("ops: [" + "1, " * MAX_NODES + "]", 1, 6 + 3 * (MAX_NODES - 3) + 1, f"over {MAX_NODES:,} values and keys"),
    ],
    ids=range(30),
)
def test_what_job_files_do_not_have_is_one_clear_mistake_at_its_place(content, line, column, message):
    found = mistake(content)
    assert (found.line, found.column) == (line, column)
    assert message in found.message
    assert len(str(found)) < 400


def test_a_bomb_of_aliases_is_refused_alias_by_alias():
    bomb = "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    found = mistakes(f"a: &a [x]\n{bomb}ops: *i\n")
    assert all("not allowed" in m.message or "unknown key" in m.message for m in found)


def test_several_mistakes_of_the_text_are_told_together_and_only_once_each():
    found = mistakes("job: &a x\nops:\n  - op: line\n    op: line\n    length: *a\nsearch: !x {}\n")
    assert [(m.line, m.key) for m in found] == [(1, "job"), (4, "ops[0].op"), (5, "ops[0].length"), (6, "search")]


def test_a_byte_order_mark_and_windows_line_ends_are_fine():
    assert values(read(b"\xef\xbb\xbf" + b"job: x\r\nops:\r\n- op: line\r\n  length: [1, 2]\r\n"), "length") == [1, 2]


def test_columns_count_characters():
    assert mistake("ops: [{op: line, name: ééé, length: x}]").column == 37


def test_a_folder_is_told(tmp_path):
    assert mistake_of_file(tmp_path).startswith("this is a folder")


def test_a_missing_file_is_told_with_what_was_probably_meant(tmp_path):
    (tmp_path / "attention.yaml").write_text(GOOD)
    assert mistake_of_file(tmp_path / "atention.yaml") == "no such file; did you mean `attention.yaml`?"
    assert mistake_of_file(tmp_path / "nowhere" / "a.yaml") == "no such file"


def test_a_pipe_is_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert mistake_of_file(tmp_path / "pipe.yaml").startswith("this is no regular file")


def test_a_device_is_told_and_not_read():
    assert mistake_of_file(Path("/dev/zero")).startswith("this is no regular file")


def test_a_circle_of_links_is_told(tmp_path):
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    assert mistake_of_file(tmp_path / "a.yaml").startswith("can't be read")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_told(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "a.yaml").chmod(0)
    assert mistake_of_file(tmp_path / "a.yaml") == "can't be read: Permission denied"


def test_a_path_that_no_file_can_have_is_told(tmp_path):
    assert "can't be read" in mistake_of_file(tmp_path / "a\0b.yaml")
    assert "can't be read" in mistake_of_file(tmp_path / ("x" * 5000))


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_job_or_end_in_a_job_error(content):
    try:
        assert read(content).tasks
    except JobError as error:
        assert error.mistakes  # noqa: PT017  bytes may be a job, or not


_WORDS = (
    *("ops", "op", "grid", "line", "rows", "length", "edge"),
    *("zip", "where", "search", "measure", "include", "name", "job"),
)
_LEAVES = st.one_of(
    st.sampled_from([*_WORDS, "4k", "rows > 1", "none"]), st.integers(-5, 5000), st.floats(), st.booleans(), st.none()
)
_TREES = st.recursive(
    _LEAVES, lambda t: st.lists(t, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), t, max_size=5), max_leaves=25
)


@settings(deadline=None)
@given(entries=st.lists(st.dictionaries(st.sampled_from(_WORDS), _TREES, max_size=6), max_size=3), top=_TREES)
def test_any_tree_of_the_languages_own_words_is_a_job_or_ends_in_a_job_error(entries, top):
    content = yaml.safe_dump(
        {"ops": [{"op": "grid", **entry} for entry in entries], **(top if isinstance(top, dict) else {})}
    )
    try:
        assert read(content).tasks
    except JobError as error:
        assert error.mistakes  # noqa: PT017  a tree may be a job, or not
        assert all(m.line >= 1 and m.column >= 1 for m in error.mistakes)  # noqa: PT017


_PLAIN = st.sampled_from(["x", "4k", "no", "1e-3", "true", "é \U0001f600", "a b", "~"])
_DOCUMENTS = st.recursive(
    _PLAIN,
    lambda t: st.lists(t, max_size=4) | st.dictionaries(st.sampled_from("abcdefg"), t, max_size=4),
    max_leaves=20,
)


def places(value, loc=()):
    """Every path of a value."""
    yield loc, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield from places(child, (*loc, step))


@settings(deadline=None)
@given(_DOCUMENTS)
def test_every_value_of_a_document_has_its_place(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("documents") / "tree.yaml"
    text = yaml.safe_dump({"root": tree}, allow_unicode=True, default_flow_style=None, width=1000)
    path.write_text(text)
    document = read_document(path, "tree", MistakeLog())
    assert document is not None
    lines = text.splitlines()
    for loc, value in places(document.value):
        line, column, _ = document.locate(loc)
        rest = lines[line - 1][column - 1 :]
        if isinstance(value, str):
            assert rest.lstrip("'").startswith(value)
        elif loc and isinstance(loc[-1], str):
            key_line, key_column, _ = document.locate(loc, at_key=True)
            assert lines[key_line - 1][key_column - 1 :].startswith(f"{loc[-1]}:")
