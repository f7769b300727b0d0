"""A store for each test."""

from pathlib import Path

import pytest

from tests.store.make import open_store
from tunefarm.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store", create=True)
