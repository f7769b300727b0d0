"""The plan book: a bundle opened in an inference process, what it has for a problem, and what it did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import torch

from tunefarm.engines import make_engine
from tunefarm.engines.engine import Engine
from tunefarm.model.errors import UsageError
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.runtime.book_calls import BookCalls
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.chain import Chain
from tunefarm.runtime.explanation import Explanation
from tunefarm.runtime.ledger import Counters, Ledger, Step
from tunefarm.runtime.lookup import Found, Hit
from tunefarm.runtime.machine import Machine, current_device
from tunefarm.runtime.misses import job_text
from tunefarm.runtime.threads import Desk, OnMiss, Shared
from tunefarm.runtime.trust import Trust


def _cudnn_engine() -> Engine:
    return make_engine("cudnn")


class PlanBook(BookCalls):
    """Looks up, loads and runs the plans of a bundle; what no plan serves, torch does.

    A call runs on torch's current stream, may be captured in a CUDA graph, and may come from any thread: plans are
    loaded once in each thread that calls them. Results equal torch's within the dtype's rounding. Calls of which a
    tensor needs a gradient, and calls under autocast, are torch's.

    The chain of a call: the bundle's plan for this device and these libraries; a plan rebuilt from the engine and knobs
    of one that does not fit; the first choice of cuDNN's heuristic; torch. Each step is counted (`counters`), the first
    call of a problem that leaves the first step is logged as a warning, and `explain` tells the whole story.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        on_miss: OnMiss = "torch",
        machine: Callable[[torch.device], Target] | None = None,
        engine: Callable[[], Engine] = _cudnn_engine,
    ) -> None:
        """A book of an opened bundle; `open` is the usual way.

        Args:
            bundle: verified, and kept open.
            on_miss: see `open`.
            machine: the target that a device is; None asks this process's libraries.
            engine: makes the engine that loads and builds plans, once in each thread.
        """
        self._bundle = bundle
        self._on_miss = on_miss
        self._ledger = Ledger()
        self._chain = Chain(bundle, machine or Machine())
        self._shared = Shared(self._chain, self._ledger, engine, on_miss)
        super().__init__(Desk(self._shared))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        trust: Trust | None = None,
        *,
        allow_unsigned: bool = False,
        on_miss: OnMiss = "torch",
    ) -> Self:
        """Open a bundle and verify its manifest. Plans are read and loaded when first called, or by `warm`.

        Args:
            path: of the bundle.
            trust: public keys or their files, one of which must have signed it.
            allow_unsigned: let in a bundle without a signature. Each use is logged as a warning.
            on_miss: what a call does that no shipped plan serves. `torch`, the default: torch answers at once, and only
                `warm` builds. `build`: the first such call builds a plan, which takes from milliseconds to seconds.

        Raises:
            BundleRefused: no trusted key signed it, or its format is of another version.
            BundleDamaged: it is no bundle, or not as it was written.
            UsageError: there is no such file, or nobody to trust.
        """
        return cls(Bundle.open(path, trust, allow_unsigned=allow_unsigned), on_miss=on_miss)

    @property
    def bundle(self) -> Bundle:
        """What the book was opened from."""
        return self._bundle

    @property
    def counters(self) -> Counters:
        """The calls up to now, by what answered them."""
        return self._ledger.counters()

    def warm(self, problems: Iterable[Problem] | None = None, *, build: bool = False) -> dict[Problem, Step]:
        """Load plans now, on torch's current device and for the calling thread; each other thread loads as it calls.

        Args:
            problems: which; None for all that the bundle has an entry for.
            build: whether to build what no shipped plan serves, as `on_miss="build"` has calls do. Takes up to seconds
                a problem.

        Returns:
            The step of the chain that serves each problem from now on.
        """
        device = current_device()
        build = build or self._on_miss == "build"
        wanted = self._chain.problems() if problems is None else problems
        steps = {problem: self._desk.decide(problem, device, build=build)[0].step for problem in wanted}
        if build:
            self._shared.forget_routes()  # those to torch, of problems that have a plan now
        return steps

    def find(self, problem: Problem, device: torch.device | None = None) -> Found:
        """The bundle's plan for a problem on a device, or every entry of the problem with the reason it does not fit.

        Loads nothing.

        Args:
            problem: to look up.
            device: None for torch's current one.
        """
        return self._chain.find(problem, _indexed(device))

    def fitting(self, device: torch.device | None = None) -> tuple[Problem, ...]:
        """Every problem that the bundle has a plan for that fits a device; None for torch's current one."""
        return tuple(problem for problem in self._chain.problems() if isinstance(self.find(problem, device), Hit))

    def explain(self, problem: Problem, device: torch.device | None = None) -> Explanation:
        """What the bundle has for a problem, what was decided, and what answered its calls. Prints as text.

        Args:
            problem: to explain.
            device: None for torch's current one.
        """
        device = _indexed(device)
        return Explanation(
            problem,
            str(device),
            self._chain.find(problem, device),
            self._chain.decided(problem, device),
            self._ledger.calls_of(problem),
        )

    def misses(self, path: str | os.PathLike[str], name: str = "misses") -> int:
        """Write a job file with every problem that was called and had no shipped plan, most called first.

        Each problem's calls are its weight, by which the next sweep orders them. Writes nothing if there is none.

        Args:
            path: of the job file, which is overwritten.
            name: of the job.

        Returns:
            The number of problems.
        """
        missed = self._ledger.missed()
        if missed:
            Path(path).write_text(job_text(missed, name), encoding="utf-8")
        return len(missed)

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # a copied model shares its book

    def __reduce__(self) -> str:
        raise UsageError(
            "a plan book can't be pickled: save the model's state dict, and apply the book after loading it"
        )


def _indexed(device: torch.device | None) -> torch.device:
    """A device with its index, as tensors name theirs."""
    if device is None or (device.type == "cuda" and device.index is None):
        return current_device()
    return device
