"""The layers, as facts."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import tunefarm
from tunefarm.cli import FARM_EXTRA

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tunefarm.__file__).parent
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0][
    "layers"
]
ROOMS = [room.strip().removeprefix("tunefarm.") for layer in LAYERS for room in layer.split("|")]


def imported_by(statement):
    """Top-level names that a fresh interpreter has imported after a statement."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; {statement}; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(done.stdout.split())


def test_rooms_import_only_lower_rooms(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = lint_imports(no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_every_folder_is_in_a_layer():
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_its_tests_and_says_what_it_is(room):
    assert (ROOT / "tests" / room).is_dir()
    assert (PACKAGE / room / "__init__.py").read_text(encoding="utf-8").startswith('"""')


def test_the_words_need_the_standard_library_alone():
    modules = sorted(f"tunefarm.model.{path.stem}" for path in (PACKAGE / "model").glob("[a-z]*.py"))
    added = imported_by(f"import {', '.join(modules)}") - imported_by("pass")
    assert added - set(sys.stdlib_module_names) == {"tunefarm"}


def test_an_inference_process_imports_nothing_of_the_farm():
    modules = sorted(f"tunefarm.runtime.{path.stem}" for path in (PACKAGE / "runtime").glob("[a-z]*.py"))
    assert not imported_by(f"import tunefarm.runtime, {', '.join(modules)}") & FARM_EXTRA - {"numpy"}  # torch's own


@pytest.mark.parametrize(
    ("statement", "kept_out"),
    [
        ("import tunefarm.cli", {"click", "rich"}),
        ("import tunefarm.ops", {"torch", "cudnn"}),
        ("import tunefarm.jobfile", {"torch", "cudnn", "ray", "pyarrow"}),
        ("import tunefarm.store", {"torch", "cudnn", "ray", "duckdb"}),
        ("import tunefarm.report.job", {"torch", "cudnn", "ray", "pyarrow", "duckdb"}),
        ("import tunefarm.farm.sweep", {"torch", "cudnn", "ray"}),
        ("import tunefarm.engines", {"torch", "cudnn", "ray", "pyarrow"}),
        ("import tunefarm.runtime.bundle", {"torch", "cudnn", "numpy"}),
        ("import tunefarm.ship.policy", {"torch", "cudnn", "ray", "pyarrow", "cryptography"}),
        ("import tunefarm.ship.installed", {"torch", "cudnn", "ray", "pyarrow", "duckdb"}),
    ],
)
def test_slow_libraries_are_imported_where_they_are_used(statement, kept_out):
    assert not imported_by(statement) & kept_out
