"""A loaded plan as a function of tensors, for calls that must cost the host little.

`Executable.bind` checks every tensor and fixes it; a served call brings new tensors each time, of shapes, strides and
dtypes that were checked once, when its route was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tunefarm.engines.cudnn import CudnnExecutable
from tunefarm.model.problem import Problem
from tunefarm.runtime.workspaces import Workspaces

ALIGNMENT = 16
"""Bytes that every operand's address must be a multiple of."""

_PYTHON_ENGINES = 20_000
"""Ids from here on are the frontend's python engines, which read a tensor's shape, not its address alone."""

Launch = Callable[[tuple[torch.Tensor, ...]], None]
"""Enqueues the plan on torch's current stream. Operands come in the order that was said when it was made."""

Allocate = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
"""Shape, strides and dtype -> a tensor that nobody has written."""


def _current_stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream) if torch.cuda.is_available() else 0


_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)  # noqa: SLF001 - a tenth of a microsecond; the public way makes an object, which takes three


def allocator(device: torch.device) -> Allocate:
    """`torch.empty_strided` for one device, at half its cost where torch has the way that Inductor's own code takes.

    That way allocates on the current device, so that it serves where there is no other.
    """
    name = f"_empty_strided_{device.type}"
    if device.type == "cpu" or (device.type == "cuda" and torch.cuda.device_count() == 1):
        fast: Allocate | None = getattr(torch._C._dynamo.guards, name, None)  # noqa: SLF001 - as said
        if fast is not None:
            return fast

    def allocate(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return allocate


class LoadedPlan:
    """A plan of cuDNN in the thread that loaded it."""

    def __init__(
        self,
        executable: CudnnExecutable,
        problem: Problem,
        device: torch.device,
        *,
        engine_id: int | None,
        zeroed: bool,
    ) -> None:
        """Nothing runs yet.

        Args:
            executable: the loaded plan.
            problem: what it was built for.
            device: where it was loaded.
            engine_id: of the plan.
            zeroed: whether its workspace must be zeroed before the first launch.
        """
        self._enqueuer = executable.enqueuer
        self._specs = {spec.name: spec for spec in problem.tensors}
        self._device = device
        self.allocate = allocator(device)
        """Makes tensors where the plan was loaded."""
        self._reads_shapes = engine_id is not None and engine_id >= _PYTHON_ENGINES
        size = executable.workspace_bytes
        self._workspaces = Workspaces(size, device, zeroed=zeroed) if size else None

    def launch(self, operands: Sequence[str]) -> Launch:
        """The plan as a function of its operands, which checks nothing.

        Dtype, layout, device and alignment of each operand are the caller's to see to.

        Args:
            operands: names of the tensors in the order in which they will be given: every input and output once.
        """
        enqueue, workspaces = self._enqueuer(tuple(self._specs[name].uid for name in operands)), self._workspaces
        raw_stream, index = _raw_stream, self._device.index or 0

        def launch(tensors: tuple[torch.Tensor, ...]) -> None:
            stream = raw_stream(index)
            enqueue(tensors, workspaces(stream) if workspaces else None, stream)

        shaped = self._shaped(launch, operands) if self._reads_shapes else launch
        several = self._device.type == "cuda" and torch.cuda.device_count() > 1
        return _with_current(self._device.index, shaped) if several else shaped

    def _shaped(self, launch: Launch, operands: Sequence[str]) -> Launch:
        """The launch with operands in the problem's shapes, where the call's have their axes folded otherwise."""
        forms = [(self._specs[name].shape, self._specs[name].strides) for name in operands]

        def launch_shaped(tensors: tuple[torch.Tensor, ...]) -> None:
            launch(tuple(t.as_strided(*form) for t, form in zip(tensors, forms, strict=True)))

        return launch_shaped


def _with_current(index: int, launch: Launch) -> Launch:
    """The launch with its device current, as the handle demands. Torch's own current device may be another."""
    current_device, device = torch.cuda.current_device, torch.cuda.device

    def launch_there(tensors: tuple[torch.Tensor, ...]) -> None:
        if current_device() == index:
            launch(tensors)
        else:
            with device(index):
                launch(tensors)

    return launch_there
