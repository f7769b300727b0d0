"""What this process's device is: the target that plans are bound to, and who measures on it."""

from __future__ import annotations

import json
import platform
import socket
from pathlib import Path

from tunefarm.engines.cudnn_library import load_cudnn
from tunefarm.engines.cudnn_refusal import declining
from tunefarm.model.target import Target


def describe_target() -> Target:
    """The target of torch's current CUDA device, or of this host's CPU where torch sees none.

    Raises:
        Declined: there is a GPU, and no cuDNN that can describe it. The text says how to mend it.
    """
    import torch

    if not torch.cuda.is_available():
        return Target(
            kind="cpu",
            device=_cpu_name(),
            compute_capability="",
            cudnn="",
            cudnn_frontend="",
            torch=torch.__version__,
            driver_cuda="",
            profile="",
        )
    cudnn = load_cudnn()
    device = torch.cuda.current_device()
    with declining(cudnn):
        profile: str = cudnn.create_device_properties(device).serialize()
        driver = int(json.loads(profile)["driverVer"])  # 13000 for 13.0
    major, minor = torch.cuda.get_device_capability(device)
    return Target(
        kind="cuda",
        device=torch.cuda.get_device_name(device),
        compute_capability=f"{major}.{minor}",
        cudnn=cudnn.backend_version_string(),
        cudnn_frontend=cudnn.__version__,
        torch=torch.__version__,
        driver_cuda=f"{driver // 1000}.{driver % 1000 // 10}",
        profile=profile,
    )


def worker_id() -> str:
    """Who measures: the GPU's UUID as NVIDIA's tools print it (`GPU-…`), or `host/cpu`."""
    import torch

    if not torch.cuda.is_available():
        return f"{socket.gethostname()}/cpu"
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _cpu_name() -> str:
    """The CPU's model, such as `AMD EPYC 9354 32-Core Processor`; its architecture where the kernel tells no model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
