"""What a candidate is verified on: inputs that must stay as they are, and guarded memory for what it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tunefarm.engines.engine import Executable
from tunefarm.measure.buffers import Bound, Guarded, copy_of, fill_garbage, poison, same_bits, scrub
from tunefarm.model.problem import Problem, Role


@dataclass(frozen=True)
class Specimen:
    """A candidate bound to guarded outputs, and to a guarded workspace of exactly its size."""

    bound: Bound
    workspace: Guarded | None
    rounds_between: bool
    """See `Judge.verdict`."""

    def fill_workspace(self, seed: int | None) -> None:
        """With garbage of a seed, or with zeros if that is None."""
        if self.workspace is None:
            return
        if seed is None:
            self.workspace.bytes.zero_()
        else:
            fill_garbage(self.workspace.bytes, seed)


class Fixture:
    """Inputs of one problem, and guarded outputs.

    Args:
        problem: what candidates are verified on.
        device: where they run.
        inputs: by name, scalars on the CPU.
        shift: bytes after an aligned address at which outputs begin.
    """

    def __init__(
        self, problem: Problem, device: torch.device, inputs: Mapping[str, torch.Tensor], shift: int = 0
    ) -> None:
        self.inputs = inputs
        self._problem = problem
        self._device = device
        self._pristine = {t.name: copy_of(inputs[t.name]) for t in problem.inputs if t.role is not Role.SCALAR}
        self._guards = {t.name: Guarded(t.span * t.dtype.size, device, shift) for t in problem.outputs}

    def bind(self, executable: Executable, *, rounds_between: bool) -> Specimen:
        """Bind a candidate to the tensors."""
        workspace = Guarded(executable.workspace_bytes, self._device) if executable.workspace_bytes else None
        outputs = {t.name: self._guards[t.name].tensor(t) for t in self._problem.outputs}
        launch = executable.bind(self.inputs, outputs, workspace.bytes if workspace else None)
        return Specimen(Bound(launch, outputs), workspace, rounds_between)

    def reset(self, specimen: Specimen) -> None:
        """Leave nothing where outputs will be that could pass for a result."""
        poison(specimen.bound.outputs.values())
        scrub(self._problem, self._device)

    def offence(self, specimen: Specimen) -> str:
        """What was written to that may not be; empty if nothing was. Mends it."""
        return self._trespass(specimen) or self.inputs_changed(self.inputs)

    def inputs_changed(self, inputs: Mapping[str, torch.Tensor]) -> str:
        """Which of some copies of the inputs no longer holds what it held; empty if none. Mends them."""
        for name, pristine in self._pristine.items():
            if not same_bits(inputs[name], pristine):
                inputs[name].copy_(pristine)
                return f"it writes to its input {name}"
        return ""

    def synchronize(self) -> None:
        """Wait for the device. Raises what its work raised."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _trespass(self, specimen: Specimen) -> str:
        guards = [(f"output {name}", guard) for name, guard in self._guards.items()]
        guards += [("its workspace", specimen.workspace)] if specimen.workspace else []
        counts = torch.stack([guard.trespasses() for _, guard in guards]).tolist()
        for (name, _), count in zip(guards, counts, strict=True):
            if count:
                return f"it writes outside of {name}: at least {count} bytes beside it"
        return ""


def alike(outputs: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs have the type, shape and bits of all of the others."""

    def is_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
        return tensor.shape == other.shape and tensor.dtype == other.dtype and same_bits(tensor, other)

    return all(is_alike(outputs[name], other) for name, other in others.items())
