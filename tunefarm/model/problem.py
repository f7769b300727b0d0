"""Problems: one operation with its shapes, strides, dtypes and options. Frozen, hashable, engine-free."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, ClassVar, Self, get_type_hints

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.keys import content_key

MAX_ELEMENTS = 2**31 - 1
"""Largest element count of one tensor. Beyond it engines index out of bounds (pytorch issues 117736, 152816)."""


class Role(StrEnum):
    """What a tensor is to its problem."""

    INPUT = "input"
    OUTPUT = "output"
    SCALAR = "scalar"
    """A host scalar, passed by value at each launch: shape all ones, lives in CPU memory."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a problem, as engines and inference processes meet it.

    `uid` is the tensor's identity inside a plan. It is baked into shipped bytes: never renumber one.
    """

    uid: int
    name: str
    role: Role
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @property
    def span(self) -> int:
        """Elements from the first to the last addressed one, gaps included."""
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def elements(self) -> int:
        """Elements that the tensor holds."""
        count = 1
        for n in self.shape:
            count *= n
        return count


def option(doc: str, *, default: Any = ..., low: int | None = None, high: int | None = None) -> Any:
    """A field of a problem: its one-line documentation, default, and bounds (inclusive) if it is a size.

    The job file's schema and its error messages are made from what is said here.
    """
    metadata = {"doc": doc, "low": low, "high": high}
    if default is ...:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Problem:
    """Base of every operation family's problem: a frozen dataclass of ints, floats, bools, strings and StrEnums.

    Every field is part of the key: a field that did not change the key would let two calls share a plan.
    """

    op: ClassVar[str]

    def __post_init__(self) -> None:
        for f in fields(self):
            low, high = f.metadata.get("low"), f.metadata.get("high")
            value = getattr(self, f.name)
            if low is not None and value < low:
                raise InvalidProblem(f.name, f"{value} is below {low}")
            if high is not None and value > high:
                raise InvalidProblem(f.name, f"{value} is above {high}")
        self.check()
        for t in self.tensors:
            if t.span > MAX_ELEMENTS:
                raise InvalidProblem(
                    t.name, f"tensor {t.name} spans {t.span} elements, over the limit of {MAX_ELEMENTS}"
                )

    @abstractmethod
    def check(self) -> None:
        """Refuse fields that contradict each other.

        Raises:
            InvalidProblem: names the field to mend.
        """

    @property
    @abstractmethod
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors that a plan reads and writes, in the order of their uids."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name for people, such as `matmul 1x4096x4096x11008 bfloat16 gelu`. Not an identity."""

    @property
    @abstractmethod
    def structure(self) -> str:
        """The problem less its sizes: two problems with equal structure may share one dynamic-shape kernel."""

    @cached_property
    def key(self) -> str:
        """The problem's key: over the operation's name and every field."""
        return content_key("problem", {"op": self.op, **self.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """The problem that `to_dict` described. Raises InvalidProblem or TypeError if it describes none."""
        problem_type: type = cls  # which mypy knows to be hashable
        kinds = _kinds_of(problem_type)
        return cls(**{name: kinds[name](value) if name in kinds else value for name, value in payload.items()})

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that are read, host scalars included."""
        return tuple(t for t in self.tensors if t.role is not Role.OUTPUT)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that are written."""
        return tuple(t for t in self.tensors if t.role is Role.OUTPUT)

    @property
    def bytes_moved(self) -> int:
        """The fewest bytes that device memory must carry: each input read once, each output written once."""
        return sum(t.elements * t.dtype.size for t in self.tensors if t.role is not Role.SCALAR)

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of the main product, a multiply-add counting two. Masked work is left out."""


@cache
def _kinds_of(problem_type: type) -> dict[str, Any]:
    """Types of a problem's fields. Kept: finding them takes longer than making the problem."""
    return get_type_hints(problem_type)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value
