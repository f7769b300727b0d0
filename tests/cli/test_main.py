"""What holds for every verb: help, errors, exit codes, streams."""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import click
import pytest

from tests.report.make import cudnn, trial
from tunefarm import __version__
from tunefarm.cli import FARM_EXTRA
from tunefarm.cli.app import EXIT_CODES, VERBS, app
from tunefarm.model.errors import FarmError, NoSuitableGpu, StoreError
from tunefarm.model.trial import Standing
from tunefarm.store import Store

HEAVY = ("ray", "torch", "pyarrow", "duckdb", "pydantic", "cudnn", "yaml", "rich")


def fresh(code, *args, **env):
    """Run code in an interpreter that has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["sweep", "--help"], ["query", "--help"], ["sweeep"]])
def test_help_imports_nothing_heavy(argv):
    done = fresh(
        f"""
        import sys
        from tunefarm.cli import main
        main({argv!r})
        print("HEAVY", sorted(set(sys.modules) & set({HEAVY!r})))
        """
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stderr


def test_python_m_tunefarm_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tunefarm", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"tunefarm {__version__}, Python 3.")


@pytest.mark.parametrize("package", ["click", "rich", "pyarrow", "yaml"])
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(package, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text("ops: [{op: matmul, m: 1, n: 8, k: 8}]")
    done = fresh(
        f"""
        import sys
        sys.modules[{package!r}] = None
        from tunefarm.cli import main
        sys.exit(main(["sweep", sys.argv[1], "--dry-run", "--store", sys.argv[2]]))
        """,
        str(job),
        str(tmp_path / "store"),
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"tunefarm: {package} is not installed; the command line needs the extra `farm`: pip install 'tunefarm[farm]'\n"
    )


def test_every_package_of_the_extra_is_known_by_its_import_name():
    with Path("pyproject.toml").open("rb") as file:
        needs = tomllib.load(file)["project"]["optional-dependencies"]["farm"]
    packages = {need.partition(">")[0].strip().lower() for need in needs}
    renamed = {"pyyaml": "yaml", "common-expression-language": "cel"}
    assert {renamed.get(package, package) for package in packages} == FARM_EXTRA


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_itself_and_each_option(verb, cli):
    command = app.get_command(click.Context(app), verb)
    assert command.help
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name
    result = cli(verb, "--help")
    assert result.code == 0
    assert result.err == ""


def test_help_lists_every_verb_and_every_exit_code(cli):
    out = cli("--help").out
    for word in (*VERBS, *map(str, EXIT_CODES)):
        assert f"  {word} " in out


@pytest.mark.parametrize(
    "argv", [[], ["nosuchverb"], ["show"], ["query", "--limit", "-1"], ["sweep", "nosuchfile.yaml"]]
)
def test_wrong_usage_exits_with_2_and_says_so_on_stderr(argv, cli):
    result = cli(*argv)
    assert result.code == 2
    assert result.out == ""
    assert "Usage: tunefarm" in result.err


def raising(monkeypatch, error):
    def broken():
        raise error

    monkeypatch.setattr("tunefarm.jobfile.job_schema", broken)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FarmError("the farm broke; mend it so"), 1),
        (StoreError("no such store; make one"), 4),
        (NoSuitableGpu("no GPU; plug one in"), 6),
    ],
)
def test_an_expected_error_is_its_message_and_its_exit_code(error, code, cli, monkeypatch):
    raising(monkeypatch, error)
    result = cli("schema")
    assert (result.code, result.out, result.err) == (code, "", f"tunefarm: {error}\n")


def test_a_bug_is_one_line_without_a_traceback(cli, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("two\nlines"))
    result = cli("schema")
    assert result.code == 1
    assert result.err == (
        "tunefarm: internal error: ZeroDivisionError: two lines. "
        "Please report it, with what `tunefarm --debug ...` prints\n"
    )


def test_debug_shows_the_traceback(cli, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("why"))
    assert "Traceback (most recent call last)" in cli("--debug", "schema").err
    monkeypatch.setenv("TUNEFARM_DEBUG", "1")
    assert "Traceback (most recent call last)" in cli("schema").err


def test_an_interrupt_exits_with_130(cli, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    result = cli("schema")
    assert (result.code, result.err) == (130, "interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m tunefarm schema | head -c 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "{0\n"
    assert done.stderr == ""


def shell(line):
    return subprocess.run(
        line.replace("tunefarm", f"{sys.executable} -m tunefarm"),
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reader_of_the_notes_that_has_gone_changes_no_exit_code_and_keeps_no_result_back(store_path):
    gone = "2> >(exit)"
    assert shell(f"tunefarm query --store {store_path}/none {gone}; echo $?").stdout == "4\n"
    (store_path / "trials" / "v1" / "stray.parquet").touch()
    done = shell(f"tunefarm query --winners --format csv --columns name --store {store_path} {gone}; echo $?")
    assert done.stdout.splitlines() == ["name", "llama-3-8b.mlp.up", "llama-3-8b.mlp.down", "4"]


@pytest.mark.parametrize("target", ["/dev/full", "&-"])
def test_a_stderr_that_can_not_be_written_changes_no_exit_code(target, store_path):
    done = shell(f"tunefarm query --store {store_path}/none 2>{target}; echo $?")
    assert done.stdout == "4\n"
    done = shell(f"tunefarm nosuchverb 2>{target}; echo $?")
    assert done.stdout == "2\n"
    done = shell(f"tunefarm query --op conv --store {store_path} --format csv 2>{target}; echo $?")
    assert (len(done.stdout.splitlines()), done.stdout.splitlines()[-1]) == (2, "0")


def test_without_a_stdout_a_command_runs_all_the_same(store_path):
    done = shell(f"tunefarm query --store {store_path} >&-; echo $? >&2")
    assert done.stderr == "0\n"


def test_a_full_disk_under_stdout_is_told(store_path):
    done = shell(f"tunefarm query --store {store_path} >/dev/full; echo $? >&2")
    assert done.stderr == "tunefarm: can't write to stdout: No space left on device\n1\n"


def test_a_broken_pipe_inside_the_farm_is_no_success(cli, monkeypatch):
    raising(monkeypatch, BrokenPipeError("a worker's"))
    assert cli("schema").code == 1


def test_a_terminal_that_can_not_show_a_name_gets_it_escaped(store_path):
    Store.open(store_path).append_trials([trial(cudnn("a"), 5.0, n=512, name="größe", standing=Standing.WON)])
    done = shell(f"PYTHONIOENCODING=ascii tunefarm query --store {store_path} --winners")
    assert "gr\\xf6\\xdfe" in done.stdout
    done = shell(f"PYTHONIOENCODING=ascii tunefarm query --store {store_path} --winners --format csv")
    assert "größe" in done.stdout


def test_a_misspelt_verb_is_told_with_what_was_meant(cli):
    assert "no command 'sweeep'; did you mean sweep?" in cli("sweeep").err


def test_notes_can_not_drive_the_terminal(cli, monkeypatch):
    raising(monkeypatch, StoreError("\x1b[2J\ngone"))
    assert cli("schema").err == "tunefarm: \\x1b[2J\ngone\n"


def test_schema_is_json_schema(cli):
    import json

    schema = json.loads(cli("schema").out)
    assert schema["type"] == "object"
    assert set(schema["properties"]) >= {"job", "ops", "search", "measure"}
