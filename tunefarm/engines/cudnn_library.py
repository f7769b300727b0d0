"""Finding libcudnn and what it calls: which library this process runs, and the mend where there is none.

Importable without torch. The frontend (`import cudnn`) looks for the library in this order: the folders of
LD_LIBRARY_PATH, the wheel in `nvidia/cudnn`, the wheel in `nvidia/cudnn_jit`, the loader's own search. Here it is given
the compiler that it calls, and asked which library won: a stray system library changes cuDNN's version silently, and a
second one beside torch's mixes the parts of both.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path
from types import ModuleType

from tunefarm.model.errors import Declined

_INSTALL = "pip install nvidia-cudnn-cu13 (nvidia-cudnn-cu12 for CUDA 12)"


@dataclass(frozen=True)
class CudnnLibrary:
    """The cuDNN that this process runs."""

    path: str
    origin: str
    """Who brought it: `wheel nvidia-cudnn-cu13 9.19.0.56, torch's own`, `LD_LIBRARY_PATH`, or `system`."""
    backend_version: str
    """With patch level, such as `9.27.0`."""
    frontend_version: str


@cache
def load_cudnn() -> ModuleType:
    """The module `cudnn`, with exactly one library behind it.

    Raises:
        Declined: there is none, or there are two. The text says how to mend it.
    """
    try:
        _preload_nvrtc()
        import cudnn
    except (ImportError, OSError, AssertionError) as error:  # AssertionError: two libraries in one wheel's folder
        raise Declined(
            f"the cuDNN frontend can't be imported ({error}); pip install --force-reinstall nvidia-cudnn-frontend, "
            f"and a library: {_INSTALL}"
        ) from None
    libraries = _mapped("libcudnn.so")
    if not libraries:
        raise Declined(f"no libcudnn.so.9 was found; {_INSTALL}")
    if len(libraries) > 1:
        raise Declined(
            f"two cuDNN libraries are loaded at once, {' and '.join(map(str, libraries))}: "
            "take the stray one out of LD_LIBRARY_PATH, or uninstall it"
        )
    module: ModuleType = cudnn
    return module


def require_driver() -> None:
    """Make sure that the NVIDIA driver's library is there: cuDNN compiles no plan without it.

    Raises:
        Declined: it is not.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Declined("no NVIDIA driver: libcuda.so.1 can't be loaded; install the driver") from None


def loaded_library() -> CudnnLibrary:
    """What `load_cudnn` found.

    Raises:
        Declined: as `load_cudnn`.
    """
    cudnn = load_cudnn()
    (path,) = _mapped("libcudnn.so")
    return CudnnLibrary(str(path), _origin(path), cudnn.backend_version_string(), cudnn.__version__)


def _preload_nvrtc() -> None:
    """Load the runtime compiler from its wheel, where the dynamic loader doesn't look.

    A library that is already in the process is found by its name; a second copy of one would be another library.
    """
    if _mapped("libnvrtc.so"):
        return
    for folder in _wheel_folders():
        for library in sorted(folder.glob("libnvrtc.so.*")):
            ctypes.CDLL(str(library))


def _wheel_folders() -> Iterator[Path]:
    """Where NVIDIA's wheels keep nvrtc: `cu13` holds all of CUDA 13, earlier ones had a folder a library."""
    spec = util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        yield from (Path(root) / part / "lib" for part in ("cu13", "cuda_nvrtc"))


def _mapped(prefix: str) -> list[Path]:
    """The shared libraries in this process whose file names begin so."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return []
    fields = (line.split(maxsplit=5) for line in lines)
    paths = {Path(f[5]) for f in fields if len(f) == 6}
    return sorted(p for p in paths if p.name.startswith(prefix))


def _origin(path: Path) -> str:
    folders = [Path(f).resolve() for f in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if f]
    if path.parent in folders:
        return "LD_LIBRARY_PATH"
    for wheel in metadata.distributions():
        name = wheel.metadata["Name"] or ""
        if not name.startswith("nvidia-cudnn") or not _holds(wheel, path):
            continue
        return f"wheel {name} {wheel.version}" + (", torch's own" if _torch_requires(name) else "")
    return "system"


def _holds(wheel: metadata.Distribution, path: Path) -> bool:
    return any(file.name == path.name and Path(str(file.locate())).resolve() == path for file in wheel.files or ())


def _torch_requires(name: str) -> bool:
    try:
        return any(need.startswith(name) for need in metadata.requires("torch") or ())
    except metadata.PackageNotFoundError:
        return False
