"""Whether outputs are right, against a float64 reference. Runs where the tensors are; a verdict waits for them once.

An output is seen as a matrix: its innermost axis in memory makes the columns, all others in their order the rows. So a
channels-last convolution is the product that it is computed as, and an attention's rows are those of one head.

With e the error and r the reference, u the unit roundoff of the output's type and rms the root mean square of r:

- l2 = |e| / |r|.
- block = largest over 32 x 32 blocks of rms(e) / max(rms(r of the block), rms / 10): a tile that lost some products.
- element = largest |e| / (u max(|r|, rms / 8)): a single wrong element. One correct rounding makes at most 1. An
  attention's rows are of unlike size, errors in a row alike, so there it is u max(|r|, rms of the row, rms / 8).
- gain = <e, r> / <r, r>: a scale that is off by less than any element's gate.

What is not finite must be so where the reference is, and with its sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch.nn.functional import pad

from tunefarm.measure.gates import Gates, gates_for, healthy_error, statistic_gates
from tunefarm.model.dtypes import DType
from tunefarm.model.problem import Problem, TensorSpec
from tunefarm.model.trial import OutputError, Verdict

BLOCK = 32
_CHUNK = 2**26
"""Elements that metrics hold temporaries of at a time: 0.5 GiB in float64."""


class Judge:
    """Judges outputs of one problem for one set of inputs.

    Args:
        problem: whose outputs they are.
        reference: every output in float64.
        attention: whether gates allow for a plain low-precision implementation's error: softmax between two products
            makes healthy error depend on the data.
    """

    def __init__(self, problem: Problem, reference: Mapping[str, torch.Tensor], *, attention: bool) -> None:
        specs = problem.outputs
        main = specs[0]
        terms = max(1.0, problem.flops / (2 * main.elements))
        tf32 = reference[main.name].is_cuda
        self._attention = attention
        self._expected = [_Expected(s, reference[s.name], by_row=attention and s is main) for s in specs]
        self._gates = {
            s.name: gates_for(s.dtype, terms, s.elements, tf32=tf32)
            if s is main
            else statistic_gates(main.dtype, terms, tf32=tf32)
            for s in specs
        }
        self._wide = dict(self._gates)
        self._strict_l2 = 10 * healthy_error(main.dtype, terms, tf32=False) if main.dtype is DType.FLOAT32 else None

    def allow_for(self, baseline: Mapping[str, torch.Tensor]) -> None:
        """Widen the gates by the errors of a plain implementation's outputs, if they are anywhere near right."""
        verdict = self._verdict(baseline, None)
        for error in verdict.outputs:
            self._wide[error.name] = self._gates[error.name].widened(error)

    def verdict(self, outputs: Mapping[str, torch.Tensor], *, rounds_between: bool) -> Verdict:
        """Whether outputs are right.

        Args:
            outputs: every output by name.
            rounds_between: whether they were made by a sequence of operations that each rounded its result, as torch's
                are: they may then be as far off as the baseline is.
        """
        return self._verdict(outputs, self._wide if self._attention or rounds_between else self._gates)

    def used_tf32(self, verdict: Verdict) -> bool:
        """Whether right float32 results are only as near as products in TF32 are."""
        return self._strict_l2 is not None and verdict.right and verdict.outputs[0].l2 > self._strict_l2

    def _verdict(self, outputs: Mapping[str, torch.Tensor], gates: Mapping[str, Gates] | None) -> Verdict:
        for expected in self._expected:
            objection = expected.misfit(outputs.get(expected.spec.name))
            if objection:
                return Verdict(right=False, reason=objection)
        figures = torch.stack([e.measure(outputs[e.spec.name]) for e in self._expected]).tolist()
        errors, reasons = [], []
        for expected, (squares, dot, block, element, misplaced) in zip(self._expected, figures, strict=True):
            name = expected.spec.name
            if misplaced:
                of = f"{misplaced:.0f} of {expected.spec.elements} elements"
                reasons.append(f"output {name}: {of} are NaN or infinite where the reference is not, or unlike it")
                continue
            error = OutputError(name, math.sqrt(squares), math.sqrt(block), element, dot)
            errors.append(error)
            if gates is not None:
                reasons.append(gates[name].objection(error))
        reason = next((r for r in reasons if r), "")
        return Verdict(right=not reason, reason=reason, outputs=tuple(errors))


class _Expected:
    """One output's reference, with what the metrics need of it computed once."""

    def __init__(self, spec: TensorSpec, reference: torch.Tensor, *, by_row: bool) -> None:
        self.spec = spec
        self._columns = min((i for i, n in enumerate(spec.shape) if n > 1), key=spec.strides.__getitem__, default=-1)
        r = self._matrix_order(reference.double()).contiguous()
        # Larger values become infinite in the output's type. Not found out by a cast, lest freed memory hold the answer
        top = torch.finfo(getattr(torch, spec.dtype)).max * (1 + spec.dtype.roundoff / 2)
        finite = r.abs() < top
        self._special: torch.Tensor | None = None
        if not bool(finite.all()):
            self._special = torch.where(r.abs() < top, 0.0, torch.where(r.isfinite(), r.sign() * torch.inf, r))
            self._finite = finite
            r = torch.where(finite, r, 0.0)
        self._r = r.view(-1, r.shape[-1])
        squares = float(torch.linalg.vector_norm(self._r)) ** 2
        self._squares = squares or 1.0  # a reference of zeros: errors count as they are
        self._rms = math.sqrt(self._squares / spec.elements)
        self._by_row = by_row
        self._rows = max(BLOCK, _CHUNK // self._r.shape[1] // BLOCK * BLOCK)
        floor = (self._rms / 10) ** 2 * BLOCK**2  # of a whole block: a part at an edge has too few elements for its own
        self._block_squares = [_block_sums(part * part).clamp_min_(floor) for part in self._chunks(self._r)]

    def misfit(self, y: torch.Tensor | None) -> str:
        """What is wrong with an output's type or shape; empty if nothing is."""
        spec = self.spec
        if y is None:
            return f"output {spec.name}: there is none"
        dtype = str(y.dtype).removeprefix("torch.")
        if dtype != spec.dtype or tuple(y.shape) != spec.shape:
            return f"output {spec.name}: is {dtype} {tuple(y.shape)}, not {spec.dtype} {spec.shape}"
        return ""

    def measure(self, y: torch.Tensor) -> torch.Tensor:
        """[l2 squared, gain, block squared, element, misplaced elements] as float64, on the device."""
        y = self._matrix_order(y)
        shape = y.shape
        e = torch.empty(shape, dtype=torch.float64, device=y.device)
        torch.sub(y, self._r.view(shape), out=e)
        if self._special is None:
            misplaced = e.isfinite().logical_not_().sum()
        else:
            alike = torch.where(self._finite, y.isfinite(), (y == self._special) | (y.isnan() & self._special.isnan()))
            misplaced = alike.logical_not_().sum()
            e = torch.where(self._finite, e, 0.0)
        errors = self._chunks(e.view(self._r.shape))
        parts = zip(errors, self._chunks(self._r), self._block_squares, strict=True)
        figures = torch.stack([self._measure_rows(*part) for part in parts])
        sums, largest = figures[:, :2].sum(0) / self._squares, figures[:, 2:].amax(0)
        return torch.cat([sums, largest, misplaced.double().view(1)])

    def _measure_rows(self, e: torch.Tensor, r: torch.Tensor, block_squares: torch.Tensor) -> torch.Tensor:
        blocks = _block_sums(e * e)
        size = r.abs()
        if self._by_row:
            size = torch.maximum(size, torch.linalg.vector_norm(r, dim=1, keepdim=True) / math.sqrt(r.shape[1]))
        size.clamp_min_(self._rms / 8).mul_(self.spec.dtype.roundoff)
        return torch.stack(
            [
                blocks.sum(),
                torch.dot(e.view(-1), r.reshape(-1)),
                (blocks / block_squares).amax(),
                e.abs().div_(size).amax(),
            ]
        )

    def _chunks(self, matrix: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(matrix, self._rows)

    def _matrix_order(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.movedim(self._columns, -1)


def _block_sums(matrix: torch.Tensor) -> torch.Tensor:
    """Sums over 32 x 32 blocks; those at the edges are smaller."""
    return _sums_of_32(_sums_of_32(matrix, 1), 0)


def _sums_of_32(matrix: torch.Tensor, dim: int) -> torch.Tensor:
    missing = -matrix.shape[dim] % BLOCK
    if missing:
        matrix = pad(matrix, (0, missing) if dim == 1 else (0, 0, 0, missing))
    shape = list(matrix.shape)
    shape[dim : dim + 1] = [-1, BLOCK]
    return matrix.reshape(shape).sum(dim + 1)


def worst(verdict: Verdict) -> float:
    """Relative error (L2) of the worst output."""
    return max((error.l2 for error in verdict.outputs), default=math.inf)


def refuted(verdict: Verdict, reason: str) -> Verdict:
    """The verdict after something else showed that results can't be trusted."""
    return replace(verdict, right=False, reason=reason)
