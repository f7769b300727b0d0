"""What every operation family knows about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from tunefarm.model.problem import Problem

if TYPE_CHECKING:  # torch takes over a second to import, and reading a job needs none of it
    import cudnn
    import torch

P = TypeVar("P", bound=Problem)
Tensors = Mapping[str, "torch.Tensor"]
"""Tensors of a problem by the names of their specs."""


@dataclass(frozen=True)
class Baseline:
    """One way that a torch user would write the operation today."""

    name: str
    """The torch candidate's name: `eager`, `compile`, `sdpa-flash`."""
    run: Callable[[Tensors], Tensors]
    """Inputs by name -> outputs by name. Allocates its outputs, as the user's code would."""
    compiles: bool = False
    """Whether its first call compiles (torch.compile): seconds, and only where the job allows it."""
    direct: Callable[[Tensors], Tensors] | None = None
    """The operator that `run` ends in, without torch's checks on the way there. For whoever calls it again on tensors
    like those that `run` took, and counts microseconds of host time."""


class Operation(ABC, Generic[P]):
    """One operation family. A new family is one module with one of these, and one job."""

    name: ClassVar[str]
    problem_type: ClassVar[type[Problem]]
    is_attention: ClassVar[bool] = False
    """Whether verdicts also allow for a low-precision baseline's error (softmax between two products)."""

    @abstractmethod
    def build_graph(self, problem: P, graph: cudnn.pygraph) -> None:
        """Add the operation's nodes to an empty graph, tensors carrying the uids of `problem.tensors`.

        The graph's intermediate and compute types are float32; every input and output brings its own type.

        Raises whatever cuDNN raises for a node that it refuses.
        """

    @abstractmethod
    def make_inputs(self, problem: P, device: torch.device, seed: int) -> dict[str, torch.Tensor]:
        """Inputs with the shapes, strides and dtypes of the specs; scalars on the CPU. Random, never constant."""

    @abstractmethod
    def reference(self, problem: P, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Every output in float64, computed from the inputs as they are stored, on the inputs' device."""

    @abstractmethod
    def baselines(self, problem: P) -> tuple[Baseline, ...]:
        """What a torch user would write; the first is plain eager, and always there."""
