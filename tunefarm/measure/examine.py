"""Verifying a candidate on inputs of one seed: twice from nothing, again after it was timed, and over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tunefarm.engines.engine import Executable
from tunefarm.measure.buffers import Bound, copy_of, poison, scrub
from tunefarm.measure.fixture import Fixture, Specimen, alike
from tunefarm.measure.verify import Judge, refuted
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Verdict
from tunefarm.ops.operation import Operation

LEAST_REPEATS = 5
"""Launches of equal bits before a candidate is called deterministic."""
_STALL_US = 200.0
_STALLED = 3
"""Repeats that are held up, so that work which escapes the stream is seen."""


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
        self._fixture = Fixture(problem, device, self.inputs)
        self._judge = Judge(problem, operation.reference(problem, self.inputs), attention=operation.is_attention)
        self._allow_for_baseline(operation)

    def bind(self, executable: Executable, *, rounds_between: bool) -> Specimen:
        """Bind a candidate to the examination's tensors."""
        return self._fixture.bind(executable, rounds_between=rounds_between)

    def examine(self, specimen: Specimen, time_launch: Callable[[], float]) -> Findings:
        """Launch twice, with garbage in the workspace and then with zeros, into outputs filled with NaN.

        Args:
            specimen: the candidate.
            time_launch: launches the specimen, more than once perhaps, and returns microseconds of one launch.
        """
        self._fixture.reset(specimen)
        specimen.fill_workspace(self._seed)
        self._fixture.synchronize()
        began = time.perf_counter()
        specimen.bound.launch()
        self._fixture.synchronize()
        first_call_ms = (time.perf_counter() - began) * 1e3
        verdict = self._judged(specimen.bound.outputs, specimen)
        first = _copies(specimen.bound.outputs) if verdict.right else {}
        launch_us = 0.0
        if verdict.right:
            self._fixture.reset(specimen)
            specimen.fill_workspace(None)
            launch_us = time_launch()
            if not alike(specimen.bound.outputs, first):  # nondeterministic, maybe; or it depends on old memory
                verdict = replace(verdict, deterministic=False, repeats=2)
                again = self._judged(specimen.bound.outputs, specimen)
                if not again.right:
                    verdict = refuted(verdict, f"its second launch, with a workspace of zeros: {again.reason}")
        poison((*first.values(), *specimen.bound.outputs.values()))
        offence = self._fixture.offence(specimen)
        return Findings(refuted(verdict, offence) if offence else verdict, first_call_ms, launch_us)

    def repeat(self, specimen: Specimen, verdict: Verdict, launches: int, seconds: float) -> Verdict:
        """Launch again and again, with other bytes in the workspace each time, and compare bits.

        Results are read in the stream's order, and for some launches the stream is held up until the host has enqueued
        all: work that escaped to another stream is then overwritten, or not there yet.

        Args:
            specimen: the candidate.
            verdict: on it, so far.
            launches: at most so many.
            seconds: after which no more than `LEAST_REPEATS` are made.

        Returns:
            The verdict, refuted if any launch was wrong.
        """
        first: dict[str, torch.Tensor] = {}
        deterministic = verdict.deterministic is not False
        began = time.monotonic()
        done = 0
        while done < launches and (done < LEAST_REPEATS or time.monotonic() - began < seconds):
            if done < _STALLED:
                self._stall()
            self._fixture.reset(specimen)
            specimen.fill_workspace(None if done % 2 else self._seed + done)
            specimen.bound.launch()
            seen = _copies(specimen.bound.outputs)
            self._fixture.synchronize()
            done += 1
            same = bool(first) and alike(seen, first)
            if not same:
                deterministic = deterministic and not first
                again = self._judged(seen, specimen)
                if not again.right:
                    verdict = refuted(verdict, f"launch {done} of {launches} on equal inputs: {again.reason}")
                    break
                first = first or seen
            if seen is not first:
                poison(seen.values())
        poison((*first.values(), *specimen.bound.outputs.values()))
        offence = self._fixture.offence(specimen)
        known = deterministic if done >= LEAST_REPEATS or not deterministic else None
        verdict = replace(verdict, deterministic=known, repeats=max(done, verdict.repeats or 0))
        return refuted(verdict, offence) if offence else verdict

    def after_timing(self, sets: Sequence[Bound], run: Callable[[], object], *, rounds_between: bool) -> str:
        """Run a timed block once more and judge what it leaves in its sets of tensors. Empty if that is right.

        What was right at first may be wrong later, or write nothing more: a launch that looks at stale state does so.
        """
        for bound in sets:
            poison(bound.outputs.values())
        scrub(self._problem, self._device)
        run()
        self._fixture.synchronize()
        last = sets[-1].outputs
        doubtful = [last, *(bound.outputs for bound in sets[:-1] if not alike(bound.outputs, last))]
        verdicts = (self._judge.verdict(outputs, rounds_between=rounds_between) for outputs in doubtful)
        reason = next((verdict.reason for verdict in verdicts if not verdict.right), "")
        for bound in sets:
            poison(bound.outputs.values())
        return f"right at first, not after it was timed: {reason}" if reason else ""

    def inputs_changed(self, inputs: Mapping[str, torch.Tensor]) -> str:
        """See `Fixture.inputs_changed`."""
        return self._fixture.inputs_changed(inputs)

    def used_tf32(self, verdict: Verdict) -> bool:
        """Whether float32 results are right, but only as near as products in TF32 are."""
        return self._judge.used_tf32(verdict)

    def _judged(self, outputs: Mapping[str, torch.Tensor], specimen: Specimen) -> Verdict:
        return self._judge.verdict(outputs, rounds_between=specimen.rounds_between)

    def _stall(self) -> None:
        """Hold the stream up for longer than the host takes to enqueue a launch."""
        if self._device.type == "cuda":
            from tunefarm.measure.gpu import current_gpu

            current_gpu(torch.cuda.current_device()).delay(_STALL_US)

    def _allow_for_baseline(self, operation: Operation[Any]) -> None:
        try:
            outputs = operation.baselines(self._problem)[0].run(self.inputs)
            self._judge.allow_for(outputs)
            poison(outputs.values())
        except (RuntimeError, ValueError):  # torch refuses, or runs out of memory: then there is nothing to allow for
            self._fixture.synchronize()  # raises if the device itself was lost


def _copies(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: copy_of(tensor) for name, tensor in outputs.items()}
