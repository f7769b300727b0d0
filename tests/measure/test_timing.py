import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.measure.timing import CpuTimer, Rotation, one_line, rotate
from tunefarm.model.job import Cache

MIB = 2**20


@pytest.mark.parametrize(
    ("launches", "megabytes", "expected"),
    [
        (20, 1, Rotation(20, 20, sweep=True)),
        (6, 170, Rotation(6, 6, sweep=True)),
        (20, 150, Rotation(20, 20, sweep=True)),
        (4, 180, Rotation(4, 2, sweep=False)),
        (1, 400, Rotation(1, 1, sweep=False)),
    ],
)
def test_cold_launches_have_a_set_each_or_two_that_evict_each_other(
    launches: int, megabytes: int, expected: Rotation
) -> None:
    assert rotate(launches, megabytes * MIB, 60 * MIB, 4096 * MIB, Cache.COLD) == expected


def test_sets_that_don_t_fit_make_a_block_of_two() -> None:
    assert rotate(20, 100 * MIB, 60 * MIB, 1024 * MIB, Cache.COLD) == Rotation(2, 2, sweep=True)
    assert rotate(1, 2000 * MIB, 0, 1024 * MIB, Cache.COLD) == Rotation(1, 1, sweep=False)


def test_hot_launches_have_one_set() -> None:
    assert rotate(20, 500 * MIB, 60 * MIB, 4096 * MIB, Cache.HOT) == Rotation(20, 1, sweep=False)


@given(st.integers(1, 20), st.integers(1, 2**33), st.integers(0, 2**28), st.sampled_from(Cache))
def test_a_rotation_never_has_more_sets_than_launches_or_launches_than_asked(
    launches: int, size: int, l2: int, cache: Cache
) -> None:
    rotation = rotate(launches, size, l2, 4096 * MIB, cache)
    assert 1 <= rotation.sets <= rotation.launches <= launches
    assert rotation.sets <= 2 or rotation.sets * size <= 4096 * MIB


def test_the_wall_clock_times_each_launch_of_a_block_once() -> None:
    calls = []
    launches = [lambda i=i: (calls.append(i), time.sleep(0.002)) for i in range(3)]
    timer = CpuTimer(Cache.COLD)
    assert timer.method(1.0) == timer.method(1e6) == timer.plain == "wall"
    us = timer.block(launches, "wall", sweep=False)()
    assert calls == [2, 0, 1, 2]  # the first one wakes torch's threads, untimed
    assert us >= 2000


def test_eager_launches_go_over_the_sets() -> None:
    calls = []
    launches = [lambda i=i: (calls.append(i), time.sleep(0.001)) for i in range(2)]
    assert CpuTimer(Cache.COLD).eager(launches, 5) >= 1000
    assert calls == [0, 1, 0, 1, 0]


def test_errors_become_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(MemoryError()) == "MemoryError"
    assert len(one_line(RuntimeError("x" * 1000))) == 300
