"""Where workers live and how the driver talks to them: one seam, with Ray behind it or this machine alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefarm.farm.messages import WorkerFacts
from tunefarm.model.errors import FarmError


class WorkerLostError(FarmError):
    """A worker went away, or never answered. The farm's fault: the work in its hands goes back."""


@dataclass(eq=False)
class Measuring:
    """A measuring worker as the driver holds it: one device, one call at a time."""

    handle: Any = field(repr=False)
    facts: WorkerFacts


@dataclass(eq=False)
class Building:
    """A compiling worker as the driver holds it: one core, one call at a time."""

    handle: Any = field(repr=False)
    env: Mapping[str, str]
    node: str


Worker = Measuring | Building
Ticket = Hashable
"""A call under way. Given back by `wait` when it is done."""


class Executor(ABC):
    """Starts workers, carries calls to them, tells when they are done. Never retries by itself."""

    @abstractmethod
    def start(self, check: Callable[[], None]) -> list[Measuring]:
        """Bring up the farm and its measuring workers: one a GPU, or one for the CPU where there is no GPU.

        Args:
            check: called now and then; what it raises ends the start.

        Raises:
            FarmError: it can't be brought up.
        """

    @abstractmethod
    def add_builders(self, target_workers: Sequence[Measuring], count: int | None) -> list[Building]:
        """Compiling workers that build for the device of the given measuring workers, on the same nodes.

        Args:
            target_workers: measuring workers of one target.
            count: how many; None for every core that no measuring worker needs.
        """

    @abstractmethod
    def call(self, worker: Worker, method: str, *args: Any) -> Ticket:
        """Begin a call of a worker's method. Arguments may be handles from `plans_of`."""

    @abstractmethod
    def wait(self, tickets: Sequence[Ticket], timeout_s: float) -> list[Ticket]:
        """Those that are done, at least one unless the time ran out."""

    @abstractmethod
    def result(self, ticket: Ticket) -> Any:
        """What a finished call returned; of a build call, its report.

        Raises:
            WorkerLostError: the worker died under it.
        """

    @abstractmethod
    def plans_of(self, ticket: Ticket) -> Any:
        """A handle on the plans of a finished build call. They stay where they are until a worker needs them."""

    @abstractmethod
    def replace(self, worker: Worker) -> None:
        """Kill a worker that died, hangs or is no longer trusted, and put a new one in its place."""

    @abstractmethod
    def close(self) -> None:
        """End every worker and whatever was started for them. Safe to call twice."""
