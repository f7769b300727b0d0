"""What this process's devices are: the facts that plans are looked up by."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from tunefarm.engines.target import describe_target
from tunefarm.model.errors import Declined
from tunefarm.model.target import Target


class Machine:
    """The target that each device is, asked for once."""

    def __init__(self) -> None:
        self._answers: dict[torch.device, Target | str] = {}

    def __call__(self, device: torch.device) -> Target:
        """The target that a device is.

        Raises:
            Declined: no plan can run there; torch can.
        """
        answer = self._answers.get(device)
        if answer is None:
            try:
                answer = _describe(device)
            except Declined as refusal:
                answer = str(refusal)
            self._answers[device] = answer
        if isinstance(answer, str):
            raise Declined(answer)
        return answer


def current_device() -> torch.device:
    """The device that calls without tensors are about: torch's current GPU, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def made_current(device: torch.device) -> AbstractContextManager[object]:
    """A stretch of code in which a device is torch's current one: engines work there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _describe(device: torch.device) -> Target:
    if device.type not in {"cuda", "cpu"}:
        raise Declined(f"plans are for NVIDIA GPUs, the tensors are on {device}")
    if device.type == "cpu" and torch.cuda.is_available():
        raise Declined("beside a GPU, the CPU's tensors are torch's")
    with made_current(device):
        return describe_target()
