import math
import random
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.measure.estimates import median_interval, t_975, winsorised

samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def test_student_s_t_falls_to_the_normal_distribution_s() -> None:
    assert t_975(1) == math.inf
    assert t_975(2) == pytest.approx(12.706)
    assert t_975(11) == pytest.approx(2.228)
    assert t_975(61) == pytest.approx(2.0003, abs=2e-3)
    assert t_975(10**6) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-4)
    values = [t_975(n) for n in range(2, 200)]
    assert values == sorted(values, reverse=True)


def test_few_samples_are_not_pulled_in() -> None:
    assert winsorised([4.0]) == (4.0, math.inf, 1)
    mean, error, left = winsorised([1.0, 2.0, 9.0])
    assert (mean, left) == (pytest.approx(4.0), 3)
    assert error == pytest.approx(stdev([1, 2, 9]) / math.sqrt(3))


@given(st.lists(st.floats(1, 2), min_size=5, max_size=30), st.floats(10, 1e9), st.booleans())
def test_one_stray_sample_does_not_move_the_mean_out_of_the_others(calm: list[float], stray: float, low: bool) -> None:
    mean, error, _ = winsorised([*calm, -stray if low else stray])
    assert 1 - 1e-9 <= mean <= 2 + 1e-9
    assert error < 2


def test_the_winsorised_error_is_about_the_spread_of_the_mean() -> None:
    rng = random.Random(0)
    estimates = [winsorised([rng.gauss(0, 1) for _ in range(12)]) for _ in range(3000)]
    spread = stdev(mean for mean, _, _ in estimates)
    assert fmean(error for _, error, _ in estimates) == pytest.approx(spread, rel=0.1)


@given(samples)
def test_the_median_lies_in_its_interval_and_the_interval_in_the_range(values: list[float]) -> None:
    median, low, high = median_interval(values)
    assert min(values) <= low <= median <= high <= max(values)


@pytest.mark.parametrize("count", [6, 10, 25])
def test_the_interval_holds_a_skewed_distribution_s_median_19_times_of_20(count: int) -> None:
    rng = random.Random(count)
    held = 0
    for _ in range(2000):
        _, low, high = median_interval([rng.expovariate(1) for _ in range(count)])
        held += low <= math.log(2) <= high
    assert held / 2000 > 0.94


def test_below_six_samples_the_range_is_given() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_interval([float(i) for i in range(10)]) == (4.5, 1.0, 8.0)
