"""Verifying a candidate on inputs of one seed: twice from nothing, and again after it was timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tunefarm.engines.engine import Executable
from tunefarm.measure.buffers import Bound, Guarded, copy_of, fill_garbage, poison, same_bits, scrub
from tunefarm.measure.verify import Judge, refuted
from tunefarm.model.problem import Problem, Role
from tunefarm.model.trial import Verdict
from tunefarm.ops.operation import Operation


@dataclass(frozen=True)
class Specimen:
    """A candidate bound to guarded outputs, and to a guarded workspace of exactly its size."""

    bound: Bound
    workspace: Guarded | None
    rounds_between: bool
    """See `Judge.verdict`."""


@dataclass(frozen=True)
class Findings:
    """What verifying showed."""

    verdict: Verdict
    first_call_ms: float
    """Of the first launch, until its work was done."""
    launch_us: float
    """Of the second launch; 0 if there was none."""


class Examination:
    """Inputs of one seed, their reference, and guarded memory for outputs.

    Args:
        problem: what candidates are examined on.
        operation: its family.
        device: where they run.
        seed: of the inputs.
    """

    def __init__(self, problem: Problem, operation: Operation[Any], device: torch.device, seed: int) -> None:
        self._problem = problem
        self._device = device
        self._seed = seed
        self.inputs = operation.make_inputs(problem, device, seed)
        self._pristine = {t.name: copy_of(self.inputs[t.name]) for t in problem.inputs if t.role is not Role.SCALAR}
        self._guards = {t.name: Guarded(t.span * t.dtype.size, device) for t in problem.outputs}
        self._judge = Judge(problem, operation.reference(problem, self.inputs), attention=operation.is_attention)
        self._allow_for_baseline(operation)

    def bind(self, executable: Executable, *, rounds_between: bool) -> Specimen:
        """Bind a candidate to the examination's tensors."""
        workspace = Guarded(executable.workspace_bytes, self._device) if executable.workspace_bytes else None
        outputs = {t.name: self._guards[t.name].tensor(t) for t in self._problem.outputs}
        launch = executable.bind(self.inputs, outputs, workspace.bytes if workspace else None)
        return Specimen(Bound(launch, outputs), workspace, rounds_between)

    def examine(self, specimen: Specimen, time_launch: Callable[[], float]) -> Findings:
        """Launch twice, with garbage in the workspace and then with zeros, into outputs filled with NaN.

        Args:
            specimen: the candidate.
            time_launch: launches the specimen, more than once perhaps, and returns microseconds of one launch.
        """
        self._reset(specimen)
        if specimen.workspace:
            fill_garbage(specimen.workspace.bytes, self._seed)
        self._synchronize()
        began = time.perf_counter()
        specimen.bound.launch()
        self._synchronize()
        first_call_ms = (time.perf_counter() - began) * 1e3
        verdict = self._judged(specimen)
        first = {name: copy_of(tensor) for name, tensor in specimen.bound.outputs.items()} if verdict.right else {}
        launch_us = 0.0
        if verdict.right:
            self._reset(specimen)
            if specimen.workspace:
                specimen.workspace.bytes.zero_()
            launch_us = time_launch()
            if not _alike(specimen.bound.outputs, first):  # nondeterministic, maybe; or it depends on old memory
                again = self._judged(specimen)
                if not again.right:
                    verdict = refuted(verdict, f"its second launch, with a workspace of zeros: {again.reason}")
        poison((*first.values(), *specimen.bound.outputs.values()))
        offence = self._trespass(specimen) or self.inputs_changed(self.inputs)
        return Findings(refuted(verdict, offence) if offence else verdict, first_call_ms, launch_us)

    def after_timing(self, sets: Sequence[Bound], run: Callable[[], object], *, rounds_between: bool) -> str:
        """Run a timed block once more and judge what it leaves in its sets of tensors. Empty if that is right.

        What was right at first may be wrong later, or write nothing more: a launch that looks at stale state does so.
        """
        for bound in sets:
            poison(bound.outputs.values())
        scrub(self._problem, self._device)
        run()
        self._synchronize()
        last = sets[-1].outputs
        doubtful = [last, *(bound.outputs for bound in sets[:-1] if not _alike(bound.outputs, last))]
        verdicts = (self._judge.verdict(outputs, rounds_between=rounds_between) for outputs in doubtful)
        reason = next((verdict.reason for verdict in verdicts if not verdict.right), "")
        for bound in sets:
            poison(bound.outputs.values())
        return f"right at first, not after it was timed: {reason}" if reason else ""

    def inputs_changed(self, inputs: Mapping[str, torch.Tensor]) -> str:
        """Which of some copies of the inputs no longer holds what it held; empty if none. Mends them."""
        for name, pristine in self._pristine.items():
            if not same_bits(inputs[name], pristine):
                inputs[name].copy_(pristine)
                return f"it writes to its input {name}"
        return ""

    def used_tf32(self, verdict: Verdict) -> bool:
        """Whether float32 results are right, but only as near as products in TF32 are."""
        return self._judge.used_tf32(verdict)

    def _judged(self, specimen: Specimen) -> Verdict:
        return self._judge.verdict(specimen.bound.outputs, rounds_between=specimen.rounds_between)

    def _reset(self, specimen: Specimen) -> None:
        poison(specimen.bound.outputs.values())
        scrub(self._problem, self._device)

    def _trespass(self, specimen: Specimen) -> str:
        guards = [(f"output {name}", guard) for name, guard in self._guards.items()]
        guards += [("its workspace", specimen.workspace)] if specimen.workspace else []
        counts = torch.stack([guard.trespasses() for _, guard in guards]).tolist()
        for (name, _), count in zip(guards, counts, strict=True):
            if count:
                return f"it writes outside of {name}: at least {count} bytes beside it"
        return ""

    def _allow_for_baseline(self, operation: Operation[Any]) -> None:
        try:
            outputs = operation.baselines(self._problem)[0].run(self.inputs)
            self._judge.allow_for(outputs)
            poison(outputs.values())
        except (RuntimeError, ValueError):  # torch refuses, or runs out of memory: then there is nothing to allow for
            self._synchronize()  # raises if the device itself was lost

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def _alike(outputs: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    def is_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
        return tensor.shape == other.shape and tensor.dtype == other.dtype and same_bits(tensor, other)

    return all(is_alike(outputs[name], other) for name, other in others.items())
