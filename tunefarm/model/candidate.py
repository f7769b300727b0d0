"""Candidates, the plans they build into, and what an engine proposed for a problem."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, Self

from tunefarm.model.keys import content_key

Knobs = tuple[tuple[str, int], ...]
"""Knob choices of an engine: (name, value) pairs, sorted by name."""


class Note(StrEnum):
    """What cuDNN may say of how a candidate computes: its numerical notes."""

    TENSOR_CORE = "tensor_core"
    DOWN_CONVERT_INPUTS = "down_convert_inputs"
    """Inputs are rounded to a narrower type first."""
    REDUCED_PRECISION_REDUCTION = "reduced_precision_reduction"
    """Sums are kept in a narrower type than the problem's."""
    NONDETERMINISTIC = "nondeterministic"
    FFT = "fft"
    WINOGRAD = "winograd"
    WINOGRAD_TILE_4X4 = "winograd_tile_4x4"
    WINOGRAD_TILE_6X6 = "winograd_tile_6x6"
    WINOGRAD_TILE_13X13 = "winograd_tile_13x13"
    STRICT_NAN_PROP = "strict_nan_prop"
    """NaNs of the inputs reach the outputs."""


NUMERICAL_NOTES = tuple(note.value for note in Note)


@dataclass(frozen=True)
class Candidate:
    """One way to run a problem: an engine and its knobs.

    The identity is what it is, never where it stood in a list: lists change with library, shape and machine
    (flashinfer pull 3449). `proposed_by` and `rank` tell how it came up and are no part of the key.
    """

    engine: str
    """The engine of tunefarm: `cudnn` or `torch`."""
    name: str
    """The engine's own name for it: cuDNN's plan name (`eng4_k24=3`), or torch's variant (`eager`, `sdpa-flash`)."""
    engine_id: int | None = None
    """cuDNN's number of the engine, per graph kind and cuDNN version. None for torch."""
    knobs: Knobs = ()
    dynamic: bool = False
    """Built with dynamic shapes and the worker's kernel cache: another binary than the static build."""
    replayable: bool = field(default=True, compare=False)
    """Whether (engine_id, knobs) makes the same plan again. False where cuDNN's API can't name one of the knobs."""
    proposed_by: str = field(default="", compare=False)
    """Who proposed it first: a heuristic mode (`A`, `B`, `FALLBACK`), `torch`, or a search."""
    rank: int = field(default=0, compare=False)
    """How many its proposer put before it. 0 is its first choice."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What cuDNN says of how it computes, as values of `Note`. Empty for torch, which says nothing."""

    @cached_property
    def key(self) -> str:
        """The candidate's key, unique within one problem and target."""
        return content_key(
            "candidate",
            {
                "engine": self.engine,
                "name": self.name,
                "engine_id": self.engine_id,
                "knobs": [list(k) for k in self.knobs],
                "dynamic": self.dynamic,
            },
        )

    @property
    def label(self) -> str:
        """Name for people: `cudnn:eng4_k24=3`, with `+dyn` where shapes are dynamic."""
        return f"{self.engine}:{self.name}" + ("+dyn" if self.dynamic else "")

    @property
    def is_stand_in(self) -> bool:
        """Whether it stands for something that has no candidate: see `refused_candidate` and `unasked_candidate`."""
        return self.name.startswith("(")

    @property
    def is_compiled(self) -> bool:
        """Whether it is what torch.compile makes, which lives only in the process that compiled it."""
        return self.engine == "torch" and self.name.startswith("compile")

    @property
    def is_default(self) -> bool:
        """Whether cuDNN's heuristic puts it first: what a user has who tunes nothing."""
        return self.engine == "cudnn" and self.proposed_by == "A" and self.rank == 0 and not self.dynamic

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, `from_dict`'s opposite."""
        return {
            "engine": self.engine,
            "name": self.name,
            "engine_id": self.engine_id,
            "knobs": [list(k) for k in self.knobs],
            "dynamic": self.dynamic,
            "replayable": self.replayable,
            "proposed_by": self.proposed_by,
            "rank": self.rank,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """The candidate that `to_dict` described."""
        knobs = tuple((str(k), int(v)) for k, v in payload["knobs"])
        return cls(**{**payload, "knobs": knobs, "notes": tuple(map(str, payload.get("notes", ())))})


def refused_candidate(engine: str) -> Candidate:
    """The stand-in candidate under which an engine's refusal of a whole problem is recorded."""
    return Candidate(engine=engine, name="(none)")


def unasked_candidate(engine: str) -> Candidate:
    """The stand-in candidate under which it is recorded that an engine's knobs could not be asked for."""
    return Candidate(engine=engine, name="(knobs)")


@dataclass(frozen=True)
class Plan:
    """A built candidate: bytes that an inference process can load."""

    candidate: Candidate
    blob: bytes = field(repr=False)
    """cuDNN: the serialized plan. torch: a recipe, as JSON."""
    workspace_bytes: int
    build_ms: float
    """Milliseconds from the graph to the serialized plan, on one core. Compiling included, heuristics not."""
    knobs: Knobs = ()
    """Every knob as the plan's own content holds it; -1 where the engine itself chose. Empty for torch."""
    kernels: str = ""
    """Digest of the kernels that it launches and how they are split. Empty where its bytes don't tell."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, as hex."""
        return sha256(self.blob).hexdigest()

    @property
    def twin_key(self) -> tuple[str, int, str]:
        """Equal for twins: plans of one problem that launch the same kernels in the same way.

        A bare engine is the twin of one explicit setting, and its bytes hold other knobs: (engine, workspace, kernels).
        """
        return self.candidate.engine, self.workspace_bytes, self.kernels or self.digest


@dataclass(frozen=True)
class Proposal:
    """What one engine proposed for one problem, or why it refused it."""

    engine: str
    candidates: tuple[Candidate, ...] = ()
    refusal: str | None = None
