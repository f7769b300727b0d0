"""Which libcudnn a process gets, and what it is told where there is none or more than one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cudnn_host import CudnnHost
from tunefarm.engines.cudnn_library import CudnnLibrary, loaded_library

REPORT = """
from tunefarm.engines.cudnn_library import loaded_library
from tunefarm.model.errors import Declined
try:
    library = loaded_library()
    print(library.path, library.origin, library.backend_version, library.frontend_version, sep="\\n")
except Declined as refusal:
    print(f"Declined: {refusal}")
import sys
print("torch" in sys.modules)
"""


def report(before: str = "", **env: str) -> list[str]:
    """The lines that a fresh interpreter prints about its cuDNN."""
    done = subprocess.run(
        [sys.executable, "-c", before + REPORT],
        env={**os.environ, "LD_LIBRARY_PATH": "", **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def library(cudnn_child: CudnnHost, h200_profile: str) -> CudnnLibrary:
    found: CudnnLibrary = cudnn_child.run(loaded_library)
    return found


@pytest.mark.cudnn
def test_the_library_tells_its_path_its_wheel_and_both_versions(library: CudnnLibrary) -> None:
    path, origin, backend, frontend, _ = report()
    assert Path(path).name.startswith("libcudnn.so")
    assert Path(path) == Path(path).resolve()
    assert origin.startswith("wheel nvidia-cudnn")
    assert (backend, frontend) == (library.backend_version, library.frontend_version)
    assert backend.count(".") == 2


@pytest.mark.cudnn
def test_finding_the_library_needs_no_torch(library: CudnnLibrary) -> None:
    assert report()[-1] == "False"


@pytest.mark.cudnn
def test_a_library_out_of_ld_library_path_is_said_to_be_so(library: CudnnLibrary) -> None:
    path, origin, *_ = report(LD_LIBRARY_PATH=str(Path(library.path).parent))
    assert path == library.path
    assert origin == "LD_LIBRARY_PATH"


@pytest.mark.cudnn
def test_two_libraries_in_one_process_are_declined(library: CudnnLibrary, tmp_path: Path) -> None:
    copy = shutil.copy(library.path, tmp_path)
    first, *_ = report(f"import ctypes; ctypes.CDLL({copy!r})")
    assert first.startswith("Declined: two cuDNN libraries are loaded at once")
    assert str(tmp_path) in first
    assert library.path in first
    assert "LD_LIBRARY_PATH" in first


def test_no_library_is_declined_with_the_package_to_install() -> None:
    hide = "import sysconfig; sysconfig.get_path = lambda *_: '/nowhere'\n"
    first, *_ = report(hide)
    if not first.startswith("Declined"):
        pytest.skip("this system has a cuDNN of its own")
    assert "no libcudnn.so.9" in first
    assert "pip install nvidia-cudnn-cu13" in first


def test_no_frontend_is_declined_with_the_package_to_install() -> None:
    first, *_ = report("import sys; sys.modules['cudnn'] = None\n")
    assert first.startswith("Declined: the cuDNN frontend can't be imported")
    assert "nvidia-cudnn-frontend" in first
