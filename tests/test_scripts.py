import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [ROOT / "scripts" / name for name in ("quickstart", "test", "check")]


def find_python(python):
    return subprocess.run(
        ["bash", "-c", "source scripts/install; find_python", "scripts/quickstart"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_python_that_serves_is_found():
    assert find_python(sys.executable).stdout == f"{sys.executable}\n"


def test_a_python_that_is_too_old_is_named_with_the_mend(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *exit*) exit 1;; *) echo 3.9.2;; esac\n')
    old.chmod(0o755)
    done = find_python(old)
    assert done.returncode != 0
    assert done.stderr == (
        f"tunefarm needs Python 3.11 or newer, {old} is 3.9.2.\n"
        "Install one, or name it: PYTHON=/path/to/python3.12 scripts/quickstart\n"
    )


def test_without_any_python_the_message_says_so():
    assert "and there is no python3." in find_python("no-such-python").stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_install_in_one_way_and_stop_at_the_first_error(script):
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail\n" in text
    assert "source scripts/install\n" in text
    assert "pip install" not in text


def test_everything_that_the_project_asks_for_is_pinned():
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["farm"],
        *project["optional-dependencies"]["test"],
    ]
    lines = (ROOT / "scripts" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    names = {need.replace("<", ">").replace("=", ">").partition(">")[0].strip().lower() for need in wanted}
    assert names - pinned == {"nvidia-cuda-nvrtc"}  # follows torch
    assert "torch==2.13.0" in lines


def test_the_quickstart_prints_commands_that_can_be_copied():
    """In quotes as a person would write them, not with a backslash before every space."""
    text = (ROOT / "scripts" / "quickstart").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if "shlex" in line)
    command = line.strip().replace(".venv/bin/python", sys.executable)
    done = subprocess.run(
        ["bash", "-c", command, "quickstart", "query", "--sql", "SELECT count(*) FROM trials"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "\n$ tunefarm query --sql 'SELECT count(*) FROM trials'\n"
