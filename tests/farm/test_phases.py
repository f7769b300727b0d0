import pytest

from tunefarm.farm.phases import PhaseShares


def test_nothing_is_lost_where_each_phase_has_its_workers_busy() -> None:
    shares = PhaseShares(10, 5, builder_busy_s=40, builder_s=40, measurer_busy_s=5, measurer_s=5)
    assert shares.lost == 0


def test_idle_workers_count_by_the_length_of_their_phase() -> None:
    half_idle_compiling = PhaseShares(10, 10, builder_busy_s=20, builder_s=40, measurer_busy_s=10, measurer_s=10)
    assert half_idle_compiling.lost == pytest.approx(0.25)


def test_a_sweep_without_work_lost_nothing() -> None:
    assert PhaseShares().lost == 0
