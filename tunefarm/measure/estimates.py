"""Estimates from few noisy samples. Pure, and without numpy: on lists of ten it takes ten times as long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

WINSORISED = 0.15
"""Share of samples that are pulled in at each end, at least one: about 3 % of timed blocks are contaminated."""
_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 0.975 for 1 to 30 degrees of freedom."""
_Z_975 = 1.959964


def t_975(samples: int) -> float:
    """Student's t at 0.975 for the mean of that many samples; infinite for fewer than two."""
    freedom = samples - 1
    if freedom < 1:
        return math.inf
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    return _Z_975 + (_Z_975**3 + _Z_975) / (4 * freedom)  # Cornish and Fisher, right to 1e-3 from here on


def winsorised(samples: Sequence[float]) -> tuple[float, float, int]:
    """Mean with the extreme samples pulled in, so that a single stray one can't move it far.

    Returns:
        The mean; its standard error by Dixon and Tukey's formula, infinite for one sample; and how many samples were
        left as they are, which is what the error's degrees of freedom come from. Below five none is pulled in.
    """
    count = len(samples)
    if count < 2:
        return samples[0], math.inf, count
    pulled = max(1, int(WINSORISED * count)) if count >= 5 else 0
    ordered = sorted(samples)
    low, high = ordered[pulled], ordered[count - 1 - pulled]
    values = [min(max(value, low), high) for value in ordered]
    left = count - 2 * pulled
    mean = sum(values) / count
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, deviation * (count - 1) / ((left - 1) * math.sqrt(count)), left


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median with its distribution-free 95 % interval: (median, low, high).

    The interval is the narrowest pair of order statistics, alike far from both ends, that holds the median of any
    continuous distribution with probability 0.95 or more. Below six samples there is none, and the range is given.
    """
    values = sorted(samples)
    count = len(values)
    outside, depth = 0.0, 0
    while True:  # the chance that the median lies beyond the depth-th value from either end
        outside += 2 * math.comb(count, depth) * 0.5**count
        if outside > 0.05 or 2 * (depth + 1) > count:
            break
        depth += 1
    depth = max(depth - 1, 0)
    return median(values), values[depth], values[count - 1 - depth]
