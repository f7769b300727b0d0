"""What the libraries on this machine are, asked in a process of its own, since asking may crash or hang.

`python -m tunefarm.engines.probe NAME` prints one line of JSON: the facts, or `{"error": ..., "mend": ...}`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunefarm.model.errors import Declined

Facts = dict[str, Any]


def probe_torch() -> Facts:
    """The version of torch, the CUDA that it was built for (None: a CPU build), and the devices that it sees."""
    import torch

    cuda = torch.cuda
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": [_device(cuda.get_device_properties(i)) for i in range(cuda.device_count())]
        if cuda.is_available()
        else [],
    }


def _device(properties: Any) -> Facts:
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
    }


def probe_driver() -> Facts:
    """The NVIDIA driver's version, the CUDA that it offers (None: no driver), how many devices this process may see."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"cuda": None, "absent": str(error)}
    offered = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(offered))
    facts: Facts = {
        "version": _kernel_module_version(),
        "cuda": f"{offered.value // 1000}.{offered.value % 1000 // 10}",
        "devices": 0,
    }
    if status := driver.cuInit(0):
        mend = "see that nvidia-smi works; in a container, start it with --gpus all"
        return {**facts, "error": f"the driver does not start: {_error_name(driver, status)}", "mend": mend}
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return {**facts, "devices": count.value}


def _error_name(driver: Any, status: int) -> str:
    name = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(name))
    return name.value.decode() if name.value else f"error {status}"


def _kernel_module_version() -> str | None:
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
    numbers = [word for word in first.split() if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else None


def probe_cudnn() -> Facts:
    """The libcudnn that a worker would run. As there, torch is imported first: whichever library is first wins."""
    from tunefarm.engines.cudnn_library import loaded_library

    with contextlib.suppress(ImportError, OSError):
        import torch  # noqa: F401 - for the libraries that it loads

    return asdict(loaded_library())


PROBES: Mapping[str, Callable[[], Facts]] = {"torch": probe_torch, "driver": probe_driver, "cudnn": probe_cudnn}


def main(name: str) -> None:
    """Run one probe and print what it found."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answer
    try:
        facts = PROBES[name]()
    except Declined as refusal:
        facts = {"error": str(refusal), "mend": None}
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the finding
        facts = {"error": f"{type(error).__name__}: {error}", "mend": None}
    answers.write(json.dumps(facts) + "\n")
    answers.close()


if __name__ == "__main__":
    main(sys.argv[1])
