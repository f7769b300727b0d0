import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.measure.racing import Kind, Race, Screen, block_launches, cap_s, gap, is_patient

speeds = st.lists(st.integers(100, 10_000), min_size=2, max_size=12, unique=True)


def run(race: Race, us: dict[str, float]) -> Race:
    while not race.is_over:
        race.close_round({key: us[key] for key in race.order()})
    return race


def noisy_race(us: dict[str, float], noise: float, rng: random.Random, *, bursts: float = 0.0) -> Race:
    race = Race(list(us), 25, rng=rng)
    while not race.is_over:
        drift = rng.lognormvariate(0, 0.01)
        times = {}
        for key in race.order():
            burst = 1.5 if rng.random() < bursts else 1.0
            times[key] = us[key] * drift * burst * rng.lognormvariate(0, noise)
        race.close_round(times)
    return race


@given(speeds, st.permutations(range(12)), st.integers(0, 99))
def test_neither_order_nor_names_nor_unit_change_who_leads(us: list[int], order: list[int], seed: int) -> None:
    named = {f"plan{i}": float(t) for i, t in enumerate(us)}
    fastest = min(named, key=named.__getitem__)
    assert run(Race(list(named), 25), named).leader == fastest
    shuffled = [f"plan{i}" for i in order if i < len(us)]
    assert run(Race(shuffled, 25, rng=random.Random(seed)), named).leader == fastest
    renamed = {f"other{i * 7 % 13}": float(t) * 17.0 for i, t in enumerate(us)}
    leader = run(Race(list(renamed), 25), renamed).leader
    assert renamed[leader] == 17.0 * named[fastest]


@given(speeds)
def test_a_plan_three_times_slower_changes_nothing(us: list[int]) -> None:
    named = {f"plan{i}": float(t) for i, t in enumerate(us)}
    without = run(Race(list(named), 25), named)
    slow = named | {"slow": 3.0 * max(us)}
    race = run(Race(list(slow), 25), slow)
    assert race.leader == without.leader
    assert set(race.running) == set(without.running)


def test_what_is_12_percent_behind_in_every_early_round_leaves_after_two() -> None:
    us = {"fast": 100.0, "near": 101.0, "far": 113.0}
    race = Race(list(us), 25)
    race.close_round(us)
    assert race.running == ["fast", "near", "far"]
    race.close_round(us)
    assert race.running == ["fast", "near"]
    assert len(race.logs["far"]) == 2


def test_a_patient_race_drops_nobody_before_round_ten() -> None:
    us = {"fast": 100.0, "far": 300.0}
    race = Race(list(us), 25, patient=True)
    for _ in range(9):
        race.close_round(us)
        assert race.running == ["fast", "far"]
    race.close_round(us)
    assert race.running == ["fast"]
    assert race.is_over


def test_it_ends_when_nobody_can_be_better_by_half_a_percent() -> None:
    us = {"a": 100.0, "b": 100.2}
    race = run(Race(list(us), 25), us)
    assert race.rounds == 5
    assert race.running == ["a", "b"]


def test_it_goes_on_while_noise_hides_who_is_better() -> None:
    rng = random.Random(0)
    us = {"a": 100.0, "b": 100.7}
    calm = sum(noisy_race(us, 0.0005, rng).rounds for _ in range(40))
    wild = sum(noisy_race(us, 0.01, rng).rounds for _ in range(40))
    assert calm < 40 * 7
    assert wild > 40 * 10


def test_what_is_surely_slower_by_less_than_the_margin_stays_a_tie() -> None:
    us = {"a": 100.0, "b": 100.4, "c": 100.6}
    assert run(Race(list(us), 25), us).running == ["a", "b"]
    assert run(Race(list(us), 25, slack={"c": 0.01}), us).running == ["a", "b", "c"]


def test_one_entrant_needs_no_round() -> None:
    race = Race(["only"], 25)
    assert race.is_over
    assert race.leader == "only"


def test_the_rounds_are_bounded() -> None:
    race = Race(["a", "b"], 7, patient=True)
    for us in (100.0, 130.0) * 3:
        race.close_round({"a": us, "b": 230 - us})
        assert not race.is_over
    race.close_round({"a": 100.0, "b": 130.0})
    assert race.is_over
    assert race.running == ["a", "b"]


def test_even_one_round_tells_what_is_far_behind() -> None:
    for patient in (False, True):
        race = run(Race(["a", "b", "c"], 1, patient=patient), {"a": 100.0, "b": 105.0, "c": 200.0})
        assert race.running == ["a", "b"]
        assert not race.gap("b", "a").is_tie


def test_a_round_is_in_a_fresh_order() -> None:
    race = Race([f"p{i}" for i in range(6)], 25, rng=random.Random(0))
    assert len({tuple(race.order()) for _ in range(20)}) > 10


def test_bursts_that_hit_single_blocks_do_not_lose_the_best() -> None:
    rng = random.Random(3)
    lost = 0
    for _ in range(150):
        us = {f"p{i}": 100 * rng.uniform(1, 1.3) for i in range(8)} | {"best": 98.0}
        lost += noisy_race(us, 0.0045, rng, bursts=0.03).leader != "best"
    assert lost <= 1


def test_a_gap_needs_two_rounds_to_be_sure_of() -> None:
    assert not gap([5.0], [1.0]).is_slower
    assert gap([5.0, 5.0, 5.0], [1.0, 1.0, 1.0]).is_slower
    few, many = (gap([1.1, 1.2, 1.05], [1.0, 1.0, 1.0], n).half_width for n in (1, 50))
    assert few < many


class TestScreen:
    def test_early_launches_are_judged_loosely_and_single_ones_less_so(self) -> None:
        screen = Screen()
        assert screen.passes_first(Kind.ORDINARY, 1e9)
        screen.keep("best", Kind.ORDINARY, 100.0)
        assert screen.passes_first(Kind.ORDINARY, 899.0)
        assert not screen.passes_first(Kind.ORDINARY, 901.0)
        assert screen.passes_second(Kind.ORDINARY, 299.0)
        assert not screen.passes_second(Kind.ORDINARY, 301.0)

    def test_the_default_always_passes(self) -> None:
        screen = Screen()
        screen.keep("best", Kind.ORDINARY, 1.0)
        assert screen.passes_first(Kind.DEFAULT, 1e6)
        assert screen.passes_second(Kind.DEFAULT, 1e6)
        screen.keep("default", Kind.DEFAULT, 1e6)
        assert screen.field(20) == ["best", "default"]

    def test_torch_s_candidates_are_screened_against_each_other_and_the_fastest_races(self) -> None:
        screen = Screen()
        screen.keep("best", Kind.ORDINARY, 1e3)
        assert screen.passes_first(Kind.BASELINE, 1e5)
        screen.keep("eager", Kind.BASELINE, 1e5)
        assert not screen.passes_first(Kind.BASELINE, 5e5)
        assert screen.passes_second(Kind.BASELINE, 9e4)
        screen.keep("compile", Kind.BASELINE, 9e4)
        assert screen.field(2) == ["best", "compile"]

    def test_what_is_half_again_as_slow_does_not_race_unless_the_whole_race_is_cheap(self) -> None:
        dear, cheap = Screen(), Screen()
        for scale, screen in ((100.0, dear), (1.0, cheap)):
            for name, us in (("a", 10.0), ("b", 14.9), ("c", 15.1)):
                screen.keep(name, Kind.ORDINARY, us * scale)
        assert dear.field(10) == ["a", "b"]
        assert cheap.field(10) == ["a", "b", "c"]

    def test_the_leader_is_timed_again_with_every_eighth(self) -> None:
        screen = Screen()
        asked = [screen.keep(f"p{i}", Kind.ORDINARY, 100.0 + i) for i in range(16)]
        assert [i for i, key in enumerate(asked) if key] == [7, 15]
        assert set(asked) == {None, "p0"}
        screen.recheck("p0", 90.0)
        assert screen.bar(Kind.ORDINARY) == 90.0

    def test_nobody_kept_is_an_empty_field(self) -> None:
        assert Screen().field(5) == []


@pytest.mark.parametrize(
    ("us", "race", "screen"),
    [(2, 20, 5), (49, 7, 5), (51, 6, 5), (149, 3, 3), (400, 2, 2), (1999, 2, 2), (2000, 1, 1), (1e6, 1, 1)],
)
def test_a_block_is_about_300_us_of_work(us: float, race: int, screen: int) -> None:
    assert block_launches(us) == race
    assert block_launches(us, screen=True) == screen


def test_only_cheap_races_are_patient_and_every_race_may_take_ten_rounds() -> None:
    assert is_patient(8, 3e3)
    assert is_patient(100, 5e3)
    assert not is_patient(9, 6e3)
    assert not is_patient(2, 1e6)
    assert cap_s(3e3) == 0.4
    assert cap_s(1e6) == 10
