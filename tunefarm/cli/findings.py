"""What a machine's facts mean for tunefarm, and what mends it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tunefarm.report.figures import plural, size

Facts = Mapping[str, Any]
ATTENTION_CAPABILITY = (8, 0)
"""The least compute capability that has bfloat16 and cuDNN's fused attention."""
GIB = 1 << 30
LEAST_SHARED_MEMORY = GIB
"""What the farm gives Ray's object store; with less in /dev/shm Ray puts it on disk."""
LEAST_DISK = 2 * GIB


class State(StrEnum):
    """How a finding bears on a sweep."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, and a sweep can do without."""
    WARNING = "warning"
    PROBLEM = "problem"
    """A sweep would fail, or would not use what the machine has."""


@dataclass(frozen=True)
class Finding:
    """One check's result."""

    check: str
    state: State
    what: str
    mend: str | None = None


def judge_torch(facts: Facts) -> Finding:
    """Whether torch can be imported, and what it was built for. Every sweep needs it."""
    if "error" in facts:
        return Finding("torch", State.PROBLEM, f"can't be imported: {facts['error']}", "pip install torch")
    built_for = f"built for CUDA {facts['cuda']}" if facts["cuda"] else "built for the CPU alone"
    return Finding("torch", State.OK, f"{facts['version']}, {built_for}")


def judge_gpu(driver: Facts, torch: Facts) -> list[Finding]:
    """The driver and every GPU, or why there is none that torch can use."""
    if "cuda" not in driver:
        return [Finding("gpu", State.PROBLEM, f"the NVIDIA driver: {driver['error']}", "see that nvidia-smi works")]
    if driver["cuda"] is None:
        mend = "install the NVIDIA driver; in a container, start it with --gpus all"
        return [Finding("gpu", State.ABSENT, f"no NVIDIA driver: {driver['absent']}", mend)]
    version = f"driver {driver['version']}, " if driver["version"] else ""
    found = f"{version}CUDA {driver['cuda']}"
    if "error" in driver:
        return [Finding("gpu", State.PROBLEM, f"{found}: {driver['error']}", driver["mend"])]
    if not driver["devices"]:
        return [Finding("gpu", State.ABSENT, f"{found}, and no device", "see CUDA_VISIBLE_DEVICES and nvidia-smi")]
    devices = torch.get("devices", ())
    if not devices:
        seen = f"{found} has {plural(driver['devices'], 'device')}, and torch sees none"
        return [Finding("gpu", State.PROBLEM, seen, _why_torch_sees_none(driver, torch))]
    return [
        Finding("driver", State.OK, found),
        *(_judge_device(place, device) for place, device in enumerate(devices)),
    ]


def _why_torch_sees_none(driver: Facts, torch: Facts) -> str:
    if "error" in torch:
        return "mend torch first"
    if not torch["cuda"]:
        return f"install a torch that is built for CUDA {driver['cuda']} or older"
    if _numbers(torch["cuda"])[0] > _numbers(driver["cuda"])[0]:
        return (
            f"torch was built for CUDA {torch['cuda']} and the driver offers {driver['cuda']}: "
            f"update the driver, or install a torch that is built for CUDA {_numbers(driver['cuda'])[0]}"
        )
    return "see what `python -c 'import torch; torch.cuda.init()'` says"


def _judge_device(place: int, device: Facts) -> Finding:
    capability = device["compute_capability"]
    what = (
        f"{device['name']}, compute capability {capability}, {size(device['memory_bytes'])}, "
        f"{device['sm_count']} multiprocessors"
    )
    if _numbers(capability) < ATTENTION_CAPABILITY:
        mend = "tune conv and matmul in float16 and float32 here, the rest on a GPU of compute capability 8.0 or more"
        return Finding(f"gpu {place}", State.WARNING, f"{what}: no bfloat16, no fused attention of cuDNN", mend)
    return Finding(f"gpu {place}", State.OK, what)


def judge_cudnn(facts: Facts, *, has_gpu: bool) -> Finding:
    """Which libcudnn was found. Without a GPU a sweep does without it."""
    if "error" in facts:
        state = State.PROBLEM if has_gpu else State.ABSENT
        return Finding("cudnn", state, facts["error"], facts.get("mend"))
    what = f"{facts['backend_version']} ({facts['origin']}), frontend {facts['frontend_version']}, {facts['path']}"
    if has_gpu and "cudnn_jit" in facts["path"]:
        mend = "pip install nvidia-cudnn-cu13 (nvidia-cudnn-cu12 for CUDA 12)"
        return Finding("cudnn", State.WARNING, f"{what}: only runtime-compiled engines", mend)
    if facts["origin"] in ("LD_LIBRARY_PATH", "system"):
        mend = "take it out of LD_LIBRARY_PATH if the one of pip was meant"
        return Finding("cudnn", State.WARNING, f"{what}: not the library that pip installed", mend)
    return Finding("cudnn", State.OK, what)


def judge_compiler(path: str | None) -> Finding:
    """Whether torch.compile has a C++ compiler to call."""
    if path is None:
        mend = "apt-get install g++, or set CXX; or say `compile: false` under `search` in the job"
        return Finding("compiler", State.WARNING, "no C++ compiler: torch.compile does not race", mend)
    return Finding("compiler", State.OK, path)


def judge_ray(version: str | None, cores: int, memory: int) -> Finding:
    """Whether Ray is there, and what it would have."""
    if version is None:
        mend = "pip install 'tunefarm[farm]', or sweep with --executor inline"
        return Finding("ray", State.PROBLEM, "not installed", mend)
    return Finding("ray", State.OK, f"{version}, {plural(cores, 'core')}, {size(memory)} of memory")


def judge_space(what: str, path: str, free: int | None, least: int, mend: str) -> Finding:
    """Whether a file system has room."""
    if free is None:
        return Finding(what, State.WARNING, f"{path} can't be read", mend)
    text = f"{size(free)} free in {path}"
    return Finding(what, State.OK, text) if free >= least else Finding(what, State.WARNING, text, mend)


def judge_store(path: str, free: int | None, fault: str | None) -> Finding:
    """Whether a sweep can write its store. `fault`: why not, a semicolon, and the mend."""
    if fault is None:
        return judge_space("store", path, free, LEAST_DISK, "free disk, or give another --store")
    what, _, mend = fault.partition("; ")
    return Finding("store", State.PROBLEM, what, mend or "give another --store")


def judge_environment(variables: Mapping[str, str]) -> Finding:
    """Variables that change what cuDNN and CUDA do."""
    if not variables:
        return Finding("environment", State.OK, "no variable that changes cuDNN or CUDA is set")
    what = ", ".join(f"{name}={value}" for name, value in sorted(variables.items()))
    if any(name.startswith(("CUDNN_LOGLEVEL", "CUDNN_FRONTEND_LOG", "CUDA_LAUNCH_BLOCKING")) for name in variables):
        return Finding(
            "environment", State.WARNING, what, "unset logging and blocking launches: they slow what is timed"
        )
    return Finding("environment", State.OK, what)


def verdict(findings: Sequence[Finding], gpus: int) -> tuple[bool, str]:
    """Whether a sweep can run here, and the one line that says so."""
    problems = [finding.check for finding in findings if finding.state is State.PROBLEM]
    if problems:
        return False, f"not ready: {', '.join(problems)}"
    if gpus:
        return True, f"ready: {plural(gpus, 'GPU')}"
    return True, "ready, CPU only: no GPU was found, and a sweep races torch's variants on the CPU"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
