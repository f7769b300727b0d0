"""The command line called in this process, and a store to read."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.report.make import TARGET, small_sweep
from tunefarm.cli import main
from tunefarm.store import Store


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys, monkeypatch):
    """Run a command: `cli("query", "--limit", 1)`. No variable of the caller's environment changes what it does."""
    for name in ("TUNEFARM_STORE", "TUNEFARM_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*args):
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def store_path(tmp_path) -> Path:
    """The store of a small sweep."""
    path = tmp_path / "store"
    store = Store.open(path, create=True)
    store.put_target(TARGET)
    store.append_trials(small_sweep())
    return path
