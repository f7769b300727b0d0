"""How far from the reference right results may be, by element type. Pure.

Healthy error is known beforehand: rounding once to a type of unit roundoff u leaves a relative error (L2) of 0.425 u,
and all of over a thousand recorded cuDNN products were within 1 % of that. Gates stand at about twice what is healthy.
At ten times it, a tile that lost some of its products would pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tunefarm.model.dtypes import DType
from tunefarm.model.trial import OutputError

ROUNDING = 0.425
"""Relative error (L2) of one correct rounding, in units of roundoff."""
_ACCUMULATION = 0.31
_TF32_ELEMENT = 40 * 2.0**-11 / DType.FLOAT32.roundoff
"""Products in TF32 leave errors of 0.6 * 2^-11 of the tensor's rms, normally distributed, whatever the element. The
metric takes them relative to an eighth of the rms at least: 6 deviations are 29 roundoffs of TF32."""
_WIDEST = 8.0
"""A baseline that is further off than so many gates is not believed: the fault may be its own."""


@dataclass(frozen=True)
class Gates:
    """Bounds on the metrics of an output; see `OutputError`. None: not judged by it."""

    l2: float
    block: float
    element: float | None
    gain: float

    def widened(self, baseline: OutputError) -> Gates:
        """Gates that also allow for what a plain low-precision implementation of the same operation does.

        Largest errors may be twice the baseline's, mean ones 1.5 times.
        """

        def wide(gate: float, allowed: float) -> float:
            return max(gate, min(allowed, _WIDEST * gate))

        return Gates(
            wide(self.l2, 1.5 * baseline.l2),
            wide(self.block, 2 * baseline.block),
            None if self.element is None else wide(self.element, 2 * baseline.element),
            wide(self.gain, 2 * abs(baseline.gain)),
        )

    def objection(self, error: OutputError) -> str:
        """The first gate that an output fails, with figure and bound; empty if it passes all."""
        checks = (
            ("relative error (L2)", error.l2, self.l2),
            ("relative error of the worst 32 x 32 block", error.block, self.block),
            ("error of the worst element, in units of roundoff,", error.element, self.element),
            ("scale error", abs(error.gain), self.gain),
        )
        for name, figure, bound in checks:
            if bound is not None and not figure <= bound:
                return f"output {error.name}: {name} is {figure:.2g}; at most {bound:.2g} is right"
        return ""


def gates_for(dtype: DType, terms: float, elements: int, *, tf32: bool) -> Gates:
    """Gates of an operation's result.

    Args:
        dtype: its element type.
        terms: products summed into one element, on average.
        elements: how many elements there are. In a small tensor rounding errors average out less.
        tf32: whether float32 products may be made in TF32, as cuDNN's plans do on a GPU.
    """
    healthy = healthy_error(dtype, terms, tf32=tf32)
    few = 1 + 1 / math.sqrt(elements)
    if dtype is DType.FLOAT32 and tf32:
        gates = Gates(7.5e-4, 1.2e-3, _TF32_ELEMENT, 1e-3)
    elif dtype is DType.FLOAT32:
        gates = Gates(10 * healthy, 20 * healthy, None, 1e-5)
    elif dtype is DType.FLOAT16:
        gates = Gates(4.2e-4, 6.5e-4, 4.0, 5e-4)
    else:
        gates = Gates(3.3e-3, 5e-3, 4.0, 1e-3)
    gain = max(gates.gain, 4 * healthy / math.sqrt(elements))
    return Gates(gates.l2 * few, gates.block * few, gates.element, gain)


def statistic_gates(dtype: DType, terms: float, *, tf32: bool) -> Gates:
    """Gates of a float32 statistic beside a result: an attention's log-sum-exp, a product's largest magnitude.

    It is computed from sums that were not rounded to the result's type, so it is judged far more strictly.

    Args:
        dtype: the result's element type.
        terms: products summed into one element, on average.
        tf32: whether float32 products may be made in TF32.
    """
    if dtype is DType.FLOAT32:
        gates = gates_for(dtype, terms, 1, tf32=tf32)
        return Gates(gates.l2, gates.block, None, gates.l2)
    bound = dtype.roundoff / 16
    return Gates(bound, 2 * bound, None, bound)


def healthy_error(dtype: DType, terms: float, *, tf32: bool) -> float:
    """Expected relative error (L2) of a result that was accumulated in float32 and rounded once."""
    accumulation = _ACCUMULATION * DType.FLOAT32.roundoff * math.sqrt(terms / 8)
    multiplication = 0.6 * 2.0**-11 if tf32 and dtype is DType.FLOAT32 else 0.0
    return math.hypot(ROUNDING * dtype.roundoff, accumulation, multiplication)
