"""What a plan book counts: every call, by the step of the fallback chain that answered it.

Each thread writes to a page of its own, so that counting costs one addition and loses nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tunefarm.model.problem import Problem

MAX_TALLIES = 16_384
"""Tallies of one thread. Shapes beyond are counted together, so that a server of endless shapes has bounded memory."""


class Step(StrEnum):
    """The fallback chain, in order."""

    SHIPPED = "shipped"
    """The bundle's plan; torch's own kernel where the bundle says that it is fastest."""
    REBUILT = "rebuilt"
    """Built here from the engine and knobs of a plan that does not fit."""
    HEURISTIC = "heuristic"
    """The first choice of cuDNN's heuristic, built here."""
    TORCH = "torch"


class Cause(StrEnum):
    """Why a call was answered by torch."""

    MISS = "no plan"
    UNSERVED = "no problem describes the call"
    GRADIENT = "a tensor needs a gradient"
    AUTOCAST = "autocast chooses the dtypes"
    SUBCLASS = "a tensor is of a class of its own"
    MISALIGNED = "an address is no multiple of 16 bytes"
    CAPTURING = "the plan is not loaded, and a CUDA graph is being captured"
    FAILED = "the plan failed when launched"


class Tally:
    """Calls of one problem that were answered alike."""

    __slots__ = ("calls", "cause", "problem", "step")

    def __init__(self, problem: Problem | None, step: Step, cause: Cause | None = None) -> None:
        self.problem = problem
        self.step = step
        self.cause = cause
        self.calls = 0


@dataclass(frozen=True)
class Counters:
    """What a book counted up to now, over all threads."""

    steps: Mapping[Step, int]
    """Calls by the step that answered them."""
    causes: Mapping[Cause, int]
    """Those that torch answered though it was not the bundle's choice, by cause."""

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(self.steps.values())


_Key = tuple[str, Step, Cause | None]


@dataclass
class Page:
    """One thread's tallies."""

    tallies: dict[_Key, Tally] = field(default_factory=dict)

    def tally(self, problem: Problem | None, step: Step, cause: Cause | None = None) -> Tally:
        """The tally of a problem's calls that are answered so. None: calls that no problem describes."""
        key: _Key = (problem.key if problem else "", step, cause)
        if key not in self.tallies and len(self.tallies) >= MAX_TALLIES:
            problem, key = None, ("", step, cause)
        return self.tallies.setdefault(key, Tally(problem, step, cause))


class Ledger:
    """The pages of all threads. Those of threads that ended are kept as one sum."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: list[tuple[threading.Thread, Page]] = []
        self._past = Page()

    def open_page(self) -> Page:
        """A page for this thread."""
        page = Page()
        with self._lock:
            self._fold()
            self._pages.append((threading.current_thread(), page))
        return page

    def tallies(self) -> tuple[Tally, ...]:
        """Every tally as it is now."""
        with self._lock:
            pages = [self._past, *(page for _, page in self._pages)]
            return tuple(tally for page in pages for tally in list(page.tallies.values()))

    def counters(self) -> Counters:
        """All calls, summed up."""
        steps: Counter[Step] = Counter(dict.fromkeys(Step, 0))
        causes: Counter[Cause] = Counter()
        for tally in self.tallies():
            steps[tally.step] += tally.calls
            if tally.cause is not None:
                causes[tally.cause] += tally.calls
        return Counters(dict(steps), {cause: n for cause, n in causes.items() if n})

    def calls_of(self, problem: Problem) -> Counter[tuple[Step, Cause | None]]:
        """The calls of one problem, by how they were answered."""
        found: Counter[tuple[Step, Cause | None]] = Counter()
        for tally in self.tallies():
            if tally.problem == problem and tally.calls:
                found[tally.step, tally.cause] += tally.calls
        return found

    def missed(self) -> Counter[Problem]:
        """Calls by problem of those that the bundle had no fitting plan for."""
        found: Counter[Problem] = Counter()
        for tally in self.tallies():
            missed = tally.step in {Step.REBUILT, Step.HEURISTIC} or tally.cause in {Cause.MISS, Cause.FAILED}
            if tally.problem is not None and missed and tally.calls:
                found[tally.problem] += tally.calls
        return found

    def _fold(self) -> None:
        """Add the pages of threads that ended to the past."""
        ended = [(thread, page) for thread, page in self._pages if not thread.is_alive()]
        self._pages = [(thread, page) for thread, page in self._pages if thread.is_alive()]
        for _, page in ended:
            for tally in page.tallies.values():
                self._past.tally(tally.problem, tally.step, tally.cause).calls += tally.calls
