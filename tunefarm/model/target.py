"""Targets: the machine facts that a plan is bound to."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from tunefarm.model.keys import content_key

BINDING_PROPERTIES = (
    "deviceVer",
    "multiProcessorCount",
    "smCountOrigin",
    "maxSharedMemoryPerBlock",
    "maxSharedMemoryPerBlockOptin",
    "reservedSharedMemoryPerBlock",
    "maxRegistersPerSM",
    "regsPerBlock",
    "maxThreadsPerBlock",
    "maxThreadsPerSM",
    "maxGridSize",
    "maxBlockSize",
    "memoryBusWidth",
)
"""Properties that cuDNN compares when it loads a plan (9.27, 9.28): a plan loads only where all are equal."""


@dataclass(frozen=True)
class Target:
    """One kind of machine. Workers with equal keys may share plans and results; others are never compared."""

    kind: str
    """`cuda` or `cpu`."""
    device: str
    """The device's own name, such as `NVIDIA H200`."""
    compute_capability: str
    """Such as `9.0`; empty for a CPU."""
    cudnn: str
    """cuDNN's version with patch level, such as `9.19.0`; empty where there is none."""
    cudnn_frontend: str
    torch: str
    driver_cuda: str
    """The CUDA version that the driver offers, such as `13.0`; empty for a CPU."""
    profile: str
    """cuDNN's own JSON of the device's properties; empty for a CPU."""

    @cached_property
    def key(self) -> str:
        """The target's key: the device's name (times of unlike devices are never compared), versions and binding."""
        facts = asdict(self)
        del facts["profile"]  # it holds clocks, bus ids and memory sizes too, which differ between equal machines
        return content_key("target", {**facts, "binding": self.binding})

    @cached_property
    def binding(self) -> dict[str, Any]:
        """The properties out of the profile that bind a plan to the device."""
        properties = json.loads(self.profile) if self.profile else {}
        return {name: properties[name] for name in BINDING_PROPERTIES if name in properties}

    @property
    def label(self) -> str:
        """Name for people: `NVIDIA H200, cuDNN 9.19.0, CUDA 13.0`."""
        parts = [self.device, f"cuDNN {self.cudnn}" if self.cudnn else "", f"torch {self.torch}"]
        return ", ".join(p for p in parts if p)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, `from_dict`'s opposite."""
        return asdict(self)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """The target that `to_dict` described."""
        return cls(**payload)
