"""Marks that need hardware are skipped in one place; the real cuDNN for hosts without a GPU."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import cudnn_host
from tunefarm.farm.isolation import JobRaisedError


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session")
def inert_driver(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A libcuda.so.1 for children that run cuDNN (`cudnn_host.load_driver`); None where the host has its own."""
    if cudnn_host.has_driver():
        return None
    if shutil.which("gcc") is None:
        pytest.skip("no NVIDIA driver, and no gcc to compile an inert one")
    return cudnn_host.compile_inert_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def cudnn_child(inert_driver: Path | None) -> Iterator[cudnn_host.CudnnHost]:
    """A child process that has the real cuDNN, replaced when it dies."""
    host = cudnn_host.CudnnHost(inert_driver)
    yield host
    host.stop()


@pytest.fixture(scope="session")
def h200_profile(cudnn_child: cudnn_host.CudnnHost) -> str:
    """cuDNN 9.27's JSON of an H200, to build plans for one without having it. They must never be executed."""
    try:
        version = cudnn_child.run(cudnn_host.cudnn_version)
    except JobRaisedError as error:
        if error.kind != "Declined":
            raise
        pytest.skip(f"no cuDNN: {error}")
    if not version.startswith(cudnn_host.PROFILE_VERSION):
        pytest.skip(f"the profile is of cuDNN {cudnn_host.PROFILE_VERSION}x, and this is {version}")
    return cudnn_host.PROFILE.read_text(encoding="utf-8")
