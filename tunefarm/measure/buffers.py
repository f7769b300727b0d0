"""Tensors that candidates run on: guarded ones to verify with, and rotating copies to time with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from tunefarm.engines.engine import Executable, Launch
from tunefarm.model.problem import Problem, Role, TensorSpec

MARGIN_BYTES = 4096
"""On both sides of a guarded tensor."""
_POISON = 0xFF
"""A byte that, repeated, is NaN in every floating-point type."""
_MARGIN = 0xA5
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_SCRUBBED = 2


@dataclass(frozen=True)
class Bound:
    """A launch of a candidate over fixed tensors, and where its outputs are found."""

    launch: Launch
    outputs: dict[str, torch.Tensor]


class Guarded:
    """A block of memory of exactly the asked size, between margins that nobody may write to.

    It begins `shift` bytes after an address that is a multiple of the allocator's alignment.
    """

    def __init__(self, size: int, device: torch.device, shift: int = 0) -> None:
        self._begin = MARGIN_BYTES + shift
        self._raw = torch.full((self._begin + size + MARGIN_BYTES,), _MARGIN, dtype=torch.uint8, device=device)
        self.bytes = self._raw[self._begin : self._begin + size]

    def tensor(self, spec: TensorSpec) -> torch.Tensor:
        """The memory as a tensor of a spec's shape, strides and dtype."""
        return self.bytes.view(getattr(torch, spec.dtype)).as_strided(
            spec.shape, spec.strides, self._begin // spec.dtype.size
        )

    def trespasses(self) -> torch.Tensor:
        """Bytes of the margins that were written to: a count, on the device. Mends them."""
        margins = (self._raw[: self._begin], self._raw[-MARGIN_BYTES:])
        count = torch.stack([(margin != _MARGIN).sum() for margin in margins]).sum()
        for margin in margins:
            margin.fill_(_MARGIN)
        return count


def poison(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrite with NaN, so that what is not written anew can't pass for a result, here or in memory reused later."""
    for tensor in tensors:
        if tensor.is_floating_point():  # a wrong candidate's outputs may be of any type
            tensor.fill_(torch.nan)


def scrub(problem: Problem, device: torch.device) -> None:
    """Overwrite free memory of the outputs' sizes with NaN.

    A torch candidate allocates its outputs, and gets memory that held the right results of the one before it.
    """
    for spec in problem.outputs:
        held = [torch.empty(spec.span, dtype=getattr(torch, spec.dtype), device=device) for _ in range(_SCRUBBED)]
        poison(held)


def fill_garbage(workspace: torch.Tensor, seed: int) -> None:
    """Random bytes, with stretches of 0xFF: whoever reads what they did not write gets NaN soon."""
    workspace.random_(0, 256, generator=torch.Generator(workspace.device).manual_seed(seed))
    whole = workspace.numel() // 16 * 16
    workspace[:whole].view(-1, 16)[::10] = _POISON


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits, NaNs included."""
    bits = _BITS[a.element_size()]
    return torch.equal(a.view(bits), b.view(bits))


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with equal strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def shifted_copy(tensor: torch.Tensor, shift: int) -> torch.Tensor:
    """A copy with equal strides that begins `shift` bytes after where the allocator would have it begin."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    skipped = shift // tensor.element_size()
    raw = torch.empty(skipped + span, dtype=tensor.dtype, device=tensor.device)
    return raw.as_strided(tensor.shape, tensor.stride(), skipped).copy_(tensor)


def set_bytes(problem: Problem) -> int:
    """Bytes of one copy of a problem's tensors."""
    return sum(t.span * t.dtype.size for t in problem.tensors if t.role is not Role.SCALAR)


class SetPool:
    """Copies of a problem's tensors, shared by its candidates: inputs with equal values, outputs, workspaces.

    Args:
        problem: whose tensors they are.
        inputs: the first set's; the others' are copies of them. Scalars, on the CPU, are shared.
        workspaces: sizes in bytes of the candidates' workspaces.
        memory_bytes: that the copies of one workspace may take. Launches with a large one take turns on fewer copies,
            but two.
    """

    def __init__(
        self,
        problem: Problem,
        inputs: Mapping[str, torch.Tensor],
        device: torch.device,
        workspaces: Iterable[int],
        memory_bytes: int,
    ) -> None:
        self._problem = problem
        self._device = device
        self._inputs = [dict(inputs)]
        self._outputs: list[dict[str, torch.Tensor]] = []
        self._workspaces: list[torch.Tensor] = []
        self._sizes = sorted(set(workspaces))
        self._memory_bytes = memory_bytes
        self._scalars = {t.name for t in problem.tensors if t.role is Role.SCALAR}

    def bind(self, executable: Executable, index: int) -> Bound:
        """A candidate's launch over the set of that index, which is made if it isn't there yet."""
        while len(self._outputs) <= index:
            self._add_set()
        outputs = dict(self._outputs[index])
        workspace = self._workspace(index, executable.workspace_bytes)
        return Bound(executable.bind(self._inputs[index], outputs, workspace), outputs)

    def inputs(self, index: int) -> Mapping[str, torch.Tensor]:
        """The inputs of a set."""
        return self._inputs[index]

    def _add_set(self) -> None:
        if len(self._inputs) <= len(self._outputs):
            first = self._inputs[0]
            copies = {name: t if name in self._scalars else copy_of(t) for name, t in first.items()}
            self._inputs.append(copies)
        specs = self._problem.outputs
        self._outputs.append(
            {
                s.name: torch.empty_strided(s.shape, s.strides, dtype=getattr(torch, s.dtype), device=self._device)
                for s in specs
            }
        )

    def _workspace(self, index: int, size: int) -> torch.Tensor | None:
        if not size:
            return None
        index %= self._turns(size)
        while len(self._workspaces) <= index:
            largest = max(s for s in self._sizes if self._turns(s) > len(self._workspaces))
            self._workspaces.append(torch.empty(largest, dtype=torch.uint8, device=self._device))
        return self._workspaces[index][:size]

    def _turns(self, size: int) -> int:
        return max(2, self._memory_bytes // max(size, 1))
