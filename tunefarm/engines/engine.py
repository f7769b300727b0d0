"""What an engine is: candidates of a problem; candidate -> plan; plan -> something that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem

if TYPE_CHECKING:
    import torch


class Launch(Protocol):
    """One bound launch: enqueues the work on torch's current stream and returns without waiting."""

    def __call__(self) -> None: ...


class Executable(ABC):
    """A loaded plan. Belongs to the process, device and thread that loaded it."""

    workspace_bytes: int

    @abstractmethod
    def bind(
        self, inputs: Mapping[str, torch.Tensor], outputs: dict[str, torch.Tensor], workspace: torch.Tensor | None
    ) -> Launch:
        """A launch over fixed tensors.

        The first bind of an executable may run it once, outside any capture: torch compiles there, and finds out what
        it refuses. Its time is a part of loading.

        Args:
            inputs: every input of the problem by name, scalars on the CPU.
            outputs: every output by name. cuDNN writes into these tensors; torch, which allocates its own as a user's
                code would, puts the tensors of its latest launch into this dict instead.
            workspace: uint8 tensor of exactly `workspace_bytes`, or None where that is 0. It must stay at its address.

        Raises:
            Declined: the engine refuses the problem this way after all.
            UsageError: a tensor is not what the plan was built for.
        """


class Engine(ABC):
    """An engine. Its methods may crash or hang the process they run in: call them in one that can be replaced."""

    name: ClassVar[str]

    @abstractmethod
    def propose(self, problem: Problem, search: Search) -> Proposal:
        """Candidates without duplicates, the engine's own favourite first; or why it refuses the problem."""

    def widen(self, problem: Problem, search: Search) -> tuple[Candidate, ...]:  # noqa: ARG002 - most have no more
        """Candidates beyond those that `propose` gave, where the search asks for a wider space.

        A call of its own, since asking may kill the process: what was proposed stands nonetheless.

        Raises:
            Declined: the engine can't tell.
        """
        return ()

    @abstractmethod
    def build(self, problem: Problem, candidate: Candidate) -> Plan:
        """Compile a candidate into bytes.

        What a problem's candidates share (graph, heuristic list, kernel cache) is kept between calls: give an engine
        the candidates of one problem in a row, and those of one structure if they are dynamic.

        Raises:
            Declined: the engine refuses it, or what it built is not the candidate that was asked for.
        """

    @abstractmethod
    def load(self, problem: Problem, plan: Plan) -> Executable:
        """Make a plan's bytes something that runs on torch's current device.

        Raises:
            Declined: the bytes don't fit this library or device.
        """
