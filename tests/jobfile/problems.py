"""Two small operations, so that these tests hold whatever the real ones look like."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem, Role, TensorSpec, option


class Edge(StrEnum):
    NONE = "none"
    WRAP = "wrap"
    CLAMP = "clamp"


@dataclass(frozen=True, kw_only=True)
class Grid(Problem):
    op: ClassVar[str] = "grid"

    rows: int = option("rows of the grid", low=1, high=2**20)
    cols: int = option("columns of the grid; 0: as rows", default=0, low=0)
    tile: int = option("rows of a tile, a divisor of rows", default=1, low=1)
    scale: float = option("factor", default=1.0)
    edge: Edge = option("what lies beyond", default=Edge.NONE)
    dtype: DType = option("element type", default=DType.BFLOAT16)
    packed: bool = option("without gaps", default=False)
    limit: int | None = option("a bound, or none", default=None)

    def __post_init__(self) -> None:
        if self.cols == 0:
            object.__setattr__(self, "cols", self.rows)
        super().__post_init__()

    def check(self) -> None:
        if self.rows % self.tile:
            raise InvalidProblem("tile", f"{self.tile} does not divide rows, which is {self.rows}")

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(1, "grid", Role.OUTPUT, (self.rows, self.cols), (self.cols, 1), self.dtype),)

    @property
    def label(self) -> str:
        return f"grid {self.rows}x{self.cols}"

    @property
    def structure(self) -> str:
        return "grid"

    @property
    def flops(self) -> int:
        return self.rows * self.cols


@dataclass(frozen=True, kw_only=True)
class Line(Problem):
    op: ClassVar[str] = "line"

    length: int = option("length", low=1)

    def check(self) -> None:
        """Any length will do."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(1, "line", Role.OUTPUT, (self.length,), (1,), DType.FLOAT32),)

    @property
    def label(self) -> str:
        return f"line {self.length}"

    @property
    def structure(self) -> str:
        return "line"

    @property
    def flops(self) -> int:
        return self.length


PROBLEM_TYPES: dict[str, type[Problem]] = {"grid": Grid, "line": Line}
