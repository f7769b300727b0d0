"""The real cuDNN on a host without a GPU: a driver that does nothing, and a process that may die."""

import ctypes
import functools
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm.engines.cudnn_library import loaded_library
from tunefarm.farm.isolation import Child, Emit

HERE = Path(__file__).parent
PROFILE = HERE / "data" / "h200-profile-cudnn-9.27.json"
PROFILE_VERSION = "9.27."
"""cuDNN's version that took the profile. Its keys depend on it."""
DEADLINE_S = 120.0


def has_driver() -> bool:
    """Whether this host has a driver of its own."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def compile_inert_driver(folder: Path) -> Path:
    """An inert libcuda.so.1 in a folder."""
    library = folder / "libcuda.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", library, HERE / "inert_libcuda.c"], check=True)
    return library


def load_driver(library: Path | None) -> None:
    """Give this process the inert driver. To be called before anything of cuDNN's is loaded."""
    if library is not None:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@dataclass(frozen=True)
class _Call:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, _emit: Emit) -> Any:
        return self.function(*self.arguments)


class CudnnHost:
    """Runs functions in a child that has cuDNN. Functions and arguments are pickled: use those of a module."""

    def __init__(self, driver: Path | None) -> None:
        self._child = Child(setup=functools.partial(load_driver, driver))

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns. A child that died raises `ChildDiedError`; the next call gets a new one."""
        return self._child.run(_Call(function, arguments), DEADLINE_S)

    def stop(self) -> None:
        """End the process. The next call gets a new one."""
        self._child.stop()


def cudnn_version() -> str:
    """The version of the library that this process gets."""
    return loaded_library().backend_version
