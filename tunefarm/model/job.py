"""Jobs: what a user wants tuned, after its file was read and checked."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property

from tunefarm.model.candidate import Candidate, Note
from tunefarm.model.keys import content_key
from tunefarm.model.problem import Problem, option


class Space(StrEnum):
    """How much of the engines' space is searched."""

    HEURISTIC = "heuristic"
    """Every config of cuDNN's heuristic lists A, B and FALLBACK."""
    KNOBS = "knobs"
    """Those, and every kernel config of each engine that takes the problem, some with the sum split."""
    EXHAUSTIVE = "exhaustive"
    """Everything that engines can name for the problem. Such a search does not stop before its end."""


@dataclass(frozen=True)
class Search:
    """Which candidates a problem gets."""

    space: Space = field(
        default=Space.HEURISTIC, metadata={"doc": "how much of the space of engines and knobs is searched"}
    )
    engines: tuple[str, ...] = field(default=("cudnn", "torch"), metadata={"doc": "engines that propose candidates"})
    dynamic: bool = field(
        default=False,
        metadata={"doc": "also build with dynamic shapes, problems of one structure sharing a kernel cache"},
    )
    compile: bool = field(default=True, metadata={"doc": "let torch.compile race (seconds of compiling a problem)"})

    @cached_property
    def key(self) -> str:
        """The search's key: proposals made under an equal one need not be asked for again."""
        return content_key("search", asdict(self))


class Cache(StrEnum):
    """State of the device's L2 cache when a timed launch starts."""

    COLD = "cold"
    """Each launch of a block has its own copy of all tensors, and L2 is swept between blocks."""
    HOT = "hot"
    """One set of tensors, one untimed launch first."""


PROTOCOL_VERSION = 2
"""Raise it when a change of the measuring code makes new figures or verdicts incomparable with stored ones."""


@dataclass(frozen=True)
class Protocol:
    """How candidates are verified and timed, and which may win. Part of a trial's key."""

    cache: Cache = field(default=Cache.COLD, metadata={"doc": "L2 cache state of timed launches"})
    max_workspace: int | None = field(
        default=None, metadata={"doc": "bytes of workspace that a winner may need", "low": 0}
    )
    deterministic: bool = field(
        default=False,
        metadata={"doc": "only what gives equal bits for equal inputs, and is not noted as otherwise, wins"},
    )
    forbid: tuple[Note, ...] = field(
        default=(), metadata={"doc": "cuDNN's numerical notes that no candidate may have; such are not compiled"}
    )
    max_rounds: int = field(default=25, metadata={"doc": "interleaved rounds of a race", "low": 1, "high": 1000})
    seed: int = field(default=0, metadata={"doc": "seed of the inputs", "low": 0, "high": 2**31 - 1})
    version: int = PROTOCOL_VERSION

    def objection(self, candidate: Candidate) -> str | None:
        """Why a candidate may not win, whatever it shows, so that it need not be compiled; None if it may."""
        barred = {*self.forbid, *((Note.NONDETERMINISTIC,) if self.deterministic else ())}
        noted = sorted(barred.intersection(candidate.notes))
        return f"cuDNN notes {', '.join(noted)} on it, which the job forbids" if noted else None

    @cached_property
    def key(self) -> str:
        """The protocol's key."""
        return content_key("protocol", asdict(self))


@dataclass(frozen=True)
class Task:
    """One problem of a job with how it is to be searched and measured."""

    name: str
    """The name that the job gave it, such as `llama-3-8b.mlp.up`; the problem's label where it gave none."""
    problem: Problem
    search: Search = Search()
    protocol: Protocol = Protocol()
    weight: int = option("calls that each of these problems stands for: the heaviest are swept first", low=1, default=1)


@dataclass(frozen=True)
class Job:
    """A checked job: its tasks without duplicates, the heaviest first, else in file order."""

    name: str
    path: str
    tasks: tuple[Task, ...]
    duplicates: int = 0
    """How many tasks were dropped since an earlier one had the same problem, search and protocol."""
