"""What README.md and the jobs say is so."""

import re
import shlex
from pathlib import Path

import click
import pytest
import torch
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests import readme
from tests.cli.conftest import cli, store_path  # noqa: F401 - fixtures
from tests.ship.make import KEY, bundle_of, choice
from tunefarm.cli.app import app
from tunefarm.jobfile import read_job

ROOT = Path(__file__).parent.parent
TEXT = readme.README.read_text(encoding="utf-8")
JOBS = sorted((ROOT / "jobs").glob("*.yaml"))


def blocks(language):
    return [body for name, body in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", TEXT) if name == language]


def commands(text):
    """The arguments of every `tunefarm` command in some shell text or comments."""
    text = re.sub(r"(?m)^#\s*(?=tunefarm )", "", text)
    statements = re.findall(r"(?m)^(?:\$ )?(tunefarm (?:\"[^\"]*\"|[^\"\n#])*)", text)
    return [shlex.split(statement)[1:] for statement in statements]


README_COMMANDS = [command for block in blocks("sh") for command in commands(block)]
JOB_COMMANDS = [command for path in JOBS for command in commands(path.read_text(encoding="utf-8"))]


def shown(command):
    return " ".join(command)


def test_the_readme_is_up_to_date():
    assert readme.rewritten(TEXT) == TEXT, "run python -m tests.readme"


def test_the_example_of_serving_runs(tmp_path, monkeypatch, capsys):
    (example,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    Path("plans").mkdir()
    Path("plans/current").write_bytes(bundle_of([choice(8)]))
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    Path("plans.key.pub").write_bytes(public)
    Path("plans.key.pub").chmod(0o644)
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    names = {"x": torch.randn(2, 8), "w": torch.randn(4, 8), "b": torch.randn(4), "q": q, "k": k, "v": v}
    with torch.no_grad():
        exec(example, names | {"model": torch.nn.Sequential(torch.nn.Linear(8, 4))})
    assert "1 of 1 layers ask the plan book" in capsys.readouterr().out


@pytest.mark.parametrize("command", [*README_COMMANDS, *JOB_COMMANDS], ids=shown)
def test_every_command_that_is_written_down_exists(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    with app.make_context("tunefarm", list(command)) as context:
        verb = app.get_command(context, command[0])
        assert verb is not None, command[0]
        verb.make_context(command[0], command[1:], parent=context)


def test_every_option_in_the_text_exists():
    verbs = [app, *(app.get_command(None, verb) for verb in app.list_commands(None))]
    verbs += [command for verb in verbs[1:] for command in getattr(verb, "commands", {}).values()]
    options = {option for verb in verbs for parameter in verb.params for option in parameter.opts}
    named = {word for code in re.findall(r"`([^`\n]+)`", TEXT) for word in re.findall(r"(?<!\S)--[a-z-]+", code)}
    assert named
    assert named <= options


@pytest.mark.parametrize("command", [c for c in README_COMMANDS if c[0] == "query"], ids=shown)
def test_every_query_in_the_readme_runs(command, cli, store_path, tmp_path, monkeypatch):  # noqa: F811 - fixtures
    monkeypatch.chdir(tmp_path)
    result = cli(*command, "--store", store_path)
    assert result.code == 0, result.err
    assert result.out or (tmp_path / "winners.parquet").exists()


def test_the_readme_has_the_commands_that_it_promises():
    assert [command[0] for command in README_COMMANDS[:6]] == ["doctor", "sweep", "sweep", "show", "query", "query"]
    assert {"show", "query"} <= {command[0] for command in README_COMMANDS}


def test_the_job_in_the_readme_is_one(tmp_path):
    (text,) = blocks("yaml")
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    assert len(read_job(path).tasks) == 5


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_job_file_is_one(path):
    assert read_job(path).tasks


def test_the_problem_that_the_readme_shows_is_in_the_quickstart():
    (shown_problem,) = (command[1] for command in README_COMMANDS if command[0] == "show")
    assert shown_problem in {task.name for task in read_job(ROOT / "jobs" / "quickstart.yaml").tasks}


def test_every_folder_in_the_tree_exists():
    (tree,) = (block for block in blocks("") if "tunefarm/\n" in block)
    rooms = re.findall(r"(?m)^  (\w+)/ ", tree)
    assert rooms
    assert all((ROOT / "tunefarm" / room).is_dir() for room in rooms)
    assert all((ROOT / folder).is_dir() for folder in re.findall(r"(?m)^(\w+)/ ", tree))


def test_every_script_in_the_readme_can_be_run():
    for script in set(re.findall(r"scripts/[\w-]+(?!\.)\b", TEXT)) - {"scripts/constraints"}:
        assert (ROOT / script).stat().st_mode & 0o100, script


def test_a_click_command_stands_behind_every_verb():
    assert all(isinstance(app.get_command(None, verb), click.Command) for verb in app.list_commands(None))
