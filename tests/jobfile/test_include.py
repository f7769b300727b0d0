"""`include:` reuses the ops of other files, within the job's folder."""

import os
from pathlib import Path

import pytest

from tests.jobfile.problems import PROBLEM_TYPES
from tests.jobfile.reading import values
from tunefarm.jobfile import read_job
from tunefarm.jobfile.files import MAX_FILES
from tunefarm.model.errors import JobError, Mistake
from tunefarm.model.job import Job


@pytest.fixture
def folder(tmp_path):
    """A folder for jobs, with something secret beside it."""
    (tmp_path / "secret.yaml").write_text("token: hunter2\n")
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def line(length: int, **more: str) -> str:
    """A job file of one line."""
    return "".join(f"{k}: {v}\n" for k, v in more.items()) + f"ops: [{{op: line, length: {length}}}]\n"


def write(folder: Path, **files: str) -> Path:
    """Write job files; the first is the job."""
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder / f"{next(iter(files))}.yaml"


def read(path: Path) -> Job:
    return read_job(path, problem_types=PROBLEM_TYPES)


def mistakes(path: Path) -> list[Mistake]:
    with pytest.raises(JobError) as caught:
        read(path)
    return caught.value.mistakes


def test_included_ops_come_first_in_the_order_of_the_includes(folder):
    job = read(write(folder, main=line(1, include="[b.yaml, a.yaml]"), a=line(2), b=line(3)))
    assert values(job, "length") == [3, 2, 1]


def test_a_job_may_consist_of_includes(folder):
    job = read(write(folder, main="include: a.yaml\n", a=line(2)))
    assert (job.name, values(job, "length")) == ("main", [2])


def test_included_ops_run_under_the_settings_of_the_job_that_includes_them(folder):
    main = write(
        folder, main=line(1, include="a.yaml", measure="{seed: 5}"), a=line(2, job="other", measure="{seed: 9}")
    )
    assert [task.protocol.seed for task in read(main).tasks] == [5, 5]


def test_an_included_entrys_own_settings_stay_its_own(folder):
    main = write(
        folder, main="include: a.yaml\nmeasure: {seed: 5}\n", a="ops: [{op: line, length: 1, measure: {seed: 9}}]\n"
    )
    assert read(main).tasks[0].protocol.seed == 9


def test_includes_are_relative_to_the_file_that_names_them(folder):
    (folder / "parts").mkdir()
    write(folder / "parts", one=line(2, include="[two.yaml, ../shared.yaml]"), two=line(3))
    job = read(write(folder, main=line(1, include="parts/one.yaml"), shared=line(4)))
    assert values(job, "length") == [3, 4, 2, 1]


def test_a_file_included_by_several_ways_counts_once(folder):
    main = write(
        folder,
        main="include: [a.yaml, b.yaml, ./a.yaml]\n",
        a=line(1, include="c.yaml"),
        b=line(2, include="c.yaml"),
        c=line(3),
    )
    job = read(main)
    assert (values(job, "length"), job.duplicates) == ([3, 1, 2], 0)


def test_mistakes_in_an_included_file_are_told_with_its_own_path_and_line_beside_the_jobs_own(folder):
    main = write(
        folder,
        main="include: [a.yaml, b.yaml]\nops: [{op: lime}]\n",
        a="# first line\nops: [{op: line, lenght: 1}]\nmeasure: {cache: x}\n",
        b="ops: [\n",
    )
    found = {(Path(m.path).name, m.line, m.key) for m in mistakes(main)}
    assert found == {
        ("a.yaml", 2, "ops[0].lenght"),
        ("a.yaml", 3, "measure.cache"),
        ("b.yaml", 2, ""),
        ("main.yaml", 2, "ops[0].op"),
    }


def test_a_file_with_mistakes_that_is_included_twice_tells_them_once(folder):
    (found,) = mistakes(write(folder, main="include: [a.yaml, ./a.yaml]\n", a="ops: [\n"))
    assert found.path == str(folder / "a.yaml")


def test_a_contradiction_in_an_included_file_is_told_there(folder):
    (found,) = mistakes(write(folder, main="include: a.yaml\n", a="ops:\n- {op: grid, rows: 3, tile: 2}\n"))
    assert (found.path, found.line, found.key) == (str(folder / "a.yaml"), 2, "ops[0].tile")


def test_a_missing_file_is_told_where_it_is_included_with_what_was_probably_meant(folder):
    (found,) = mistakes(write(folder, main="include: atention.yaml\n", attention=line(1)))
    assert (found.path, found.line, found.column, found.key) == (str(folder / "main.yaml"), 1, 10, "include")
    assert found.message == "atention.yaml: no such file; did you mean `attention.yaml`?"


def test_files_that_include_each_other_in_a_circle_are_told(folder):
    (found,) = mistakes(
        write(folder, main=line(1, include="a.yaml"), a=line(2, include="b.yaml"), b=line(3, include="a.yaml"))
    )
    assert (found.path, found.line, found.key) == (str(folder / "b.yaml"), 1, "include")
    assert "a.yaml -> b.yaml -> a.yaml" in found.message


def test_a_file_that_includes_itself_is_told(folder):
    (found,) = mistakes(write(folder, main=line(1, include="main.yaml")))
    assert "circle" in found.message


@pytest.mark.parametrize(
    "target",
    ["../secret.yaml", "/etc/passwd", "{folder}/inside.yaml", "x/../../secret.yaml", "link.yaml", "away/secret.yaml"],
)
def test_what_leads_out_of_the_jobs_folder_is_refused_unread(folder, target):
    (folder / "link.yaml").symlink_to(folder.parent / "secret.yaml")
    (folder / "away").symlink_to(folder.parent)
    path = write(folder, main=f"include: {target.format(folder=folder)}\n", inside=line(1))
    (found,) = mistakes(path)
    assert (found.path, found.key) == (str(path), "include")
    assert "leads out of the job's folder" in found.message
    assert "hunter2" not in str(found)
    assert "token" not in str(found)


def test_a_link_within_the_folder_is_followed(folder):
    (folder / "link.yaml").symlink_to("real.yaml")
    assert values(read(write(folder, main="include: link.yaml\n", real=line(7))), "length") == [7]


def test_a_job_that_is_itself_a_link_includes_from_where_it_really_lies(folder):
    (folder.parent / "link.yaml").symlink_to(write(folder, main="include: a.yaml\n", a=line(7)))
    assert values(read(folder.parent / "link.yaml"), "length") == [7]


@pytest.mark.parametrize("target", ["'.'", "pipe.yaml"])
def test_only_regular_files_are_included(folder, target):
    os.mkfifo(folder / "pipe.yaml")
    (found,) = mistakes(write(folder, main=f"include: {target}\n"))
    assert "give the path of a YAML file" in found.message


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("[]", "an empty list"),
        ("3", "expected text, got `3`"),
        ("[a.yaml, {b: c}]", "expected text, got a mapping"),
        ('"a\\0b.yaml"', "printable characters"),
        ("''", "printable characters"),
    ],
)
def test_an_include_that_is_no_path_is_told(folder, target, message):
    (found,) = mistakes(write(folder, main=f"include: {target}\n", a=line(1)))
    assert message in found.message


def test_the_number_of_files_is_bounded(folder):
    files = {f"f{i}": line(1, include=f"f{i + 1}.yaml") for i in range(MAX_FILES)}
    (found,) = mistakes(write(folder, **files, **{f"f{MAX_FILES}": line(2)}))
    assert found.path == str(folder / f"f{MAX_FILES - 1}.yaml")
    assert f"over {MAX_FILES} files" in found.message


def test_files_that_double_at_each_level_are_read_once_each(folder):
    files = {f"f{i}": line(i + 1, include=f"[f{i + 1}.yaml, ./f{i + 1}.yaml]") for i in range(60)}
    assert len(read(write(folder, **files, f60=line(99))).tasks) == 61
