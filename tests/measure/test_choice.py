"""What is chosen from races with known truth: failures 6 and 7 of other tuners among them."""

import math
import random
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.measure.choice import Traits, byte_count, choose, stand, win_reason
from tunefarm.measure.racing import Gap, Kind, Race
from tunefarm.model.trial import Standing


def traits(label: str, *, kind: Kind = Kind.ORDINARY, workspace: int = 0, error: float = 1.66e-3) -> Traits:
    return Traits(label, kind, workspace, error)


def board(us: dict[str, float], known: dict[str, Traits], noise: float, rng: random.Random) -> str:
    """The winner on one board: noise of its own, a bias a plan that no averaging removes, stray blocks, drift."""
    bias = {key: rng.lognormvariate(0, 0.0015) for key in us}
    race = Race(list(us), 25, {key: known[key].slack for key in us}, patient=True, rng=rng)
    while not race.is_over:
        drift = rng.lognormvariate(0, 0.01)
        stray = {key: 1 + rng.expovariate(1 / 0.06) if rng.random() < 0.03 else 1 for key in us}
        race.close_round(
            {key: us[key] * drift * bias[key] * stray[key] * rng.lognormvariate(0, noise) for key in race.order()}
        )
    return choose(race, known)


def told(us: dict[str, float]) -> Race:
    """A race without noise, finished."""
    race = Race(list(us), 25, patient=True)
    while not race.is_over:
        race.close_round({key: us[key] for key in race.order()})
    return race


def reason(
    winner: str,
    behind: dict[str, Gap],
    known: dict[str, Traits],
    *,
    running: Collection[str] = (),
    us: dict[str, float] | None = None,
) -> str:
    return win_reason(winner, behind, known, running=running, confirmed_us=us or {})


@pytest.mark.parametrize("noise", [0.0045, 0.015, 0.03])
def test_what_is_chosen_instead_of_the_default_is_hardly_ever_slower(noise: float) -> None:
    rng = random.Random(noise)
    losses = []
    for _ in range(400):
        us = {"default": 100.0} | {f"p{i}": 100 * rng.lognormvariate(0, 0.02) for i in range(5)}
        known = {key: traits(key, kind=Kind.DEFAULT if key == "default" else Kind.ORDINARY) for key in us}
        losses.append(us[board(us, known, noise, rng)] / 100 - 1)
    assert sum(loss > 0 for loss in losses) <= 0.01 * len(losses)
    assert max(losses) < 0.01


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03])
def test_boards_with_noise_of_their_own_write_the_same_winner(noise: float) -> None:
    rng = random.Random(noise)
    alike = again = 0
    for _ in range(200):
        us = {"a": 100.0, "b": 100 * (1 + rng.uniform(0.001, 0.02)), "c": 120.0}
        known = {key: traits(key) for key in us}
        first = board(us, known, noise, rng)
        alike += board(us, known, noise, rng) == first
        again += board(us, known | {first: replace(known[first], incumbent=True)}, noise, rng) == first
    assert alike >= 0.8 * 200  # by the order of ties alone
    assert again >= 0.95 * 200  # on tuning again, with the stored winner in the race


def test_the_stored_winner_stays_until_something_is_one_percent_faster() -> None:
    known = {"old": replace(traits("old"), incumbent=True), "new": traits("new", workspace=0)}
    for us, winner in ((100.9, "old"), (101.1, "new")):
        race = Race(["old", "new"], 25, {"old": known["old"].slack})
        while not race.is_over:
            race.close_round({"old": us, "new": 100.0})
        assert choose(race, known) == winner


def test_the_default_stays_unless_the_gain_is_above_half_a_percent() -> None:
    known = {"default": traits("default", kind=Kind.DEFAULT, workspace=2**20), "new": traits("new")}
    assert choose(told({"default": 100.4, "new": 100.0}), known) == "default"
    assert choose(told({"default": 100.6, "new": 100.0}), known) == "new"


def test_a_tie_that_is_no_sure_gain_over_the_default_is_passed_over() -> None:
    known = {"default": traits("default", kind=Kind.DEFAULT), "a": traits("a"), "b": traits("b", workspace=2**20)}
    us = {"default": 100.6, "a": 100.3, "b": 100.0}
    race = told(us)
    assert choose(race, known) == "b"
    gap = race.gap("a", "b")
    assert stand("a", "b", gap, known, running=True)[1].endswith("not surely faster than cuDNN's default")


@pytest.mark.parametrize(
    ("a", "b", "winner", "why"),
    [
        (traits("a", workspace=1_258_291), traits("b"), "b", "b comes first by less workspace (0 against 1.2 MiB)"),
        (traits("a", error=1.8e-3), traits("b"), "b", "b comes first by the smaller error (1.7e-03 against 1.8e-03)"),
        (traits("a", error=1.664e-3), traits("b", error=1.662e-3), "a", "a comes first by name"),
    ],
)
def test_ties_go_to_less_workspace_then_less_error_then_the_name(a: Traits, b: Traits, winner: str, why: str) -> None:
    known = {"a": a, "b": b}
    race = told({"a": 100.0, "b": 100.1})
    assert choose(race, known) == winner
    loser = "b" if winner == "a" else "a"
    standing, words = stand(loser, winner, race.gap(loser, winner), known, running=True)
    assert standing is Standing.TIED
    gap = race.gap(loser, winner)
    assert words == f"tied ({gap.percent:+.1f} ± 0.0 %); {why}"
    rule = why.removeprefix(f"{winner} ")
    assert reason(winner, {loser: gap}, known, running=[loser, winner]) == f"tied with {loser}; {rule}"


def test_reasons_are_in_words() -> None:
    known = {
        "d": traits("cudnn:eng4", kind=Kind.DEFAULT),
        "w": traits("cudnn:eng7"),
        "t": traits("torch:eager", kind=Kind.BASELINE),
    }
    sure = Gap(0.1158, 0.01)
    assert stand("d", "w", sure, known, running=False) == (Standing.SLOWER, "12.3 % slower than cudnn:eng7")
    assert reason("w", {"d": sure, "t": Gap(0.3, 0.1)}, known) == "12.3 % faster than cudnn:eng4, cuDNN's default"
    assert reason("w", {"t": sure}, known) == "12.3 % faster than torch:eager"
    assert reason("d", {"w": Gap(0, 1)}, known) == "cuDNN's default; no significant gain over it"
    assert reason("w", {}, known) == "the only candidate in the race"
    no_gain = (Standing.TIED, "no significant gain over cudnn:eng4, cuDNN's default")
    assert stand("w", "d", Gap(-0.001, 0.01), known, running=True) == no_gain
    unsure = stand("t", "w", Gap(0.02, 0.025), known, running=True)
    assert unsure == (Standing.TIED, "not surely slower than cudnn:eng7 (+2.0 ± 2.5 %)")
    stored = known | {"w": replace(known["w"], incumbent=True)}
    assert reason("w", {"d": Gap(0.001, 0.002)}, stored) == "0.1 % faster than cudnn:eng4, cuDNN's default"
    stays = "the stored winner; nothing is surely 1 % faster"
    assert reason("w", {"d": Gap(0.001, 0.002)}, stored, running=["d", "w"]) == stays
    assert "stored winner" in stand("d", "w", Gap(-0.004, 0.002), stored, running=True)[1]


@pytest.mark.parametrize(
    ("gap", "running", "winner_s", "loser_s"),
    [
        (Gap(0.149, 0.05), True, "16.1 % faster than l", "16.1 % slower than a"),
        (Gap(0.149, 0.05), False, "16.1 % faster than l", "16.1 % slower than a"),
        (
            Gap(math.log(1.43), math.log(2.09)),
            True,
            "43.0 % faster than l, but not surely (± 109.0 %)",
            "not surely slower than a (+43.0 ± 109.0 %)",
        ),
        (Gap(-0.02, 0.05), True, "tied with l; comes first by name", "tied (-2.0 ± 5.1 %); a comes first by name"),
        (
            Gap(-0.02, 0.05),
            False,
            "tied with l; comes first by its times in the race",
            "tied (-2.0 ± 5.1 %); a comes first by its times in the race",
        ),
    ],
)
def test_the_winner_s_reason_agrees_with_the_loser_s(gap: Gap, running: bool, winner_s: str, loser_s: str) -> None:
    known = {"w": traits("a"), "l": traits("l")}
    assert reason("w", {"l": gap}, known, running=["w", "l"] if running else ["w"]) == winner_s
    assert stand("l", "w", gap, known, running=running)[1] == loser_s


def test_a_winner_whose_confirmed_median_is_not_the_best_says_that_times_are_noisy() -> None:
    known = {"a": traits("a"), "b": traits("b")}
    gap = Gap(-0.1, math.log(2.09))
    noisy = reason("a", {"b": gap}, known, running=["a", "b"], us={"a": 100.0, "b": 88.0})
    assert noisy == "tied with b; comes first by name; times are noisy (± 109.0 %): the median of b is 12.0 % lower"
    calm = reason("a", {"b": gap}, known, running=["a", "b"], us={"a": 100.0, "b": 99.8})
    assert calm == "tied with b; comes first by name"


@given(
    means=st.lists(st.floats(-3, 3), min_size=1, max_size=3),
    width=st.floats(0, 9) | st.just(math.inf),
    has_default=st.booleans(),
    incumbent=st.booleans(),
    runs=st.booleans(),
)
def test_no_winner_is_faster_by_less_than_nothing(
    means: list[float], width: float, has_default: bool, incumbent: bool, runs: bool
) -> None:
    keys = [f"l{i}" for i in range(len(means))]
    known = {key: traits(key) for key in keys} | {"w": replace(traits("w"), incumbent=incumbent)}
    if has_default:
        known[keys[0]] = traits(keys[0], kind=Kind.DEFAULT)
    behind = {key: Gap(mean, width) for key, mean in zip(keys, means, strict=True)}
    assert "-" not in reason("w", behind, known, running=[*keys, "w"] if runs else ["w"])


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (512, "512 B"), (1024, "1.0 KiB"), (1_258_291, "1.2 MiB"), (5 * 2**40, "5120.0 GiB")]
)
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert byte_count(count) == text
