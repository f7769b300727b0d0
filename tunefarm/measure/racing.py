"""Which candidates are worth timing with care, and how long to go on. Pure: is fed times, never takes one.

The screen leaves out what is far behind, by few launches and loose bounds. The race times the rest in rounds: one block
of each, in a fresh random order, so that drift meets all alike and cancels in the paired differences of a round. It
stops once nobody can be better than the leader by more than the indifference margin.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from statistics import median

from tunefarm.measure.estimates import t_975, winsorised

FIRST_LAUNCH = 4.0
FIRST_LAUNCH_US = 500.0
"""A candidate's early launch is biased high, so the bound on it is loose: 4 times the best and 0.5 ms."""
SECOND_LAUNCH = 3.0
WORTH_RACING = 1.5
RECHECK = 8
"""The best of the screen is timed again with every eighth kept candidate, lest a lucky block set the bar."""
INDIFFERENCE = math.log1p(0.005)
"""Differences below 0.5 % matter to nobody: blocks of one plan differ by as much."""
LIKELY_NOISE = 0.7
"""Share of a gap's uncertainty within which it ties. Where blocks vary by 0.5 % the indifference margin is wider; where
they vary by 3 % a band as narrow as the margin would leave the set of ties to chance."""
WIDEST_TIE = math.log1p(0.02)
"""However uncertain."""
FIRST_TEST = 5
"""Rounds before the race tests differences."""
FAR_BEHIND = math.log(1.12)
"""Behind by more in every one of the first rounds: dropped without a test."""
PATIENT_ROUNDS = 10
PATIENT_ENTRANTS = 8
PATIENT_US = 50e3
"""A race of few entrants, or of cheap ones, drops nobody before round 10: there is nothing to save."""
RACE_CAP_US = 400e3


class Kind(Enum):
    """What a candidate is to the choice."""

    ORDINARY = auto()
    DEFAULT = auto()
    """cuDNN's first choice: what a user has who tunes nothing. Always raced."""
    BASELINE = auto()
    """Of torch. The fastest of them is always raced."""


class Screen:
    """Bounds that candidates must keep to enter the race. Ask and tell in the order in which candidates arrive."""

    def __init__(self) -> None:
        self.kept: dict[str, float] = {}
        """Microseconds of one launch of each kept candidate, from its block."""
        self._kinds: dict[str, Kind] = {}

    def bar(self, kind: Kind) -> float:
        """What a candidate of the kind is compared to: the best so far; for torch's, the best of torch's."""
        if kind is Kind.DEFAULT:
            return math.inf
        rivals = [us for key, us in self.kept.items() if kind is Kind.ORDINARY or self._kinds[key] is kind]
        return min(rivals, default=math.inf)

    def passes_first(self, kind: Kind, us: float) -> bool:
        """Whether an early launch, not yet warm, is near enough."""
        return us <= FIRST_LAUNCH * self.bar(kind) + FIRST_LAUNCH_US

    def passes_second(self, kind: Kind, us: float) -> bool:
        """Whether a single launch is near enough."""
        return us <= SECOND_LAUNCH * self.bar(kind)

    def keep(self, key: str, kind: Kind, us: float) -> str | None:
        """Take in a candidate's block. Returns who is to be timed again, if anybody: see `RECHECK`."""
        leader = self.leader
        self.kept[key], self._kinds[key] = us, kind
        due = leader is not None and self.leader == leader and len(self.kept) % RECHECK == 0
        return leader if due else None

    def recheck(self, key: str, us: float) -> None:
        """Take in another block of a kept candidate."""
        self.kept[key] = min(self.kept[key], us)

    @property
    def leader(self) -> str | None:
        """The fastest kept candidate."""
        return min(self.kept, key=self.kept.__getitem__, default=None)

    def field(self, launches: int) -> list[str]:
        """Who races: all near the best, the default, and torch's fastest; everybody where that costs little."""
        if not self.kept:
            return []
        best = min(self.kept.values())
        if PATIENT_ROUNDS * launches * sum(self.kept.values()) <= PATIENT_US:
            return list(self.kept)
        baselines = [key for key in self.kept if self._kinds[key] is Kind.BASELINE]
        always = {key for key in self.kept if self._kinds[key] is Kind.DEFAULT}
        always |= set(sorted(baselines, key=self.kept.__getitem__)[:1])
        return [key for key, us in self.kept.items() if us <= WORTH_RACING * best or key in always]


@dataclass(frozen=True)
class Gap:
    """How much slower one entrant is than another: a difference of logarithms, with the half-width of its interval."""

    mean: float
    half_width: float

    @property
    def is_slower(self) -> bool:
        """Whether it is surely slower."""
        return self.mean - self.half_width > 0

    @property
    def is_tie(self) -> bool:
        """Whether it is behind by no more than matters, or than noise may well account for."""
        return self.mean <= max(INDIFFERENCE, min(LIKELY_NOISE * self.half_width, WIDEST_TIE))

    @property
    def percent(self) -> float:
        """The difference in percent."""
        return 100 * math.expm1(self.mean)


def gap(slower: Sequence[float], faster: Sequence[float], comparisons: int = 1) -> Gap:
    """Gap between two entrants from the logarithms of their times in the same rounds.

    Args:
        slower: times of the one that the gap is of.
        faster: times of the one that it is compared to. Rounds that only one of them saw are left out.
        comparisons: how many such comparisons are made; the interval widens with them.
    """
    differences = [a - b for a, b in zip(slower, faster, strict=False)]
    mean, error, left = winsorised(differences)
    allowance = 1 + 0.25 * math.log(max(1, comparisons))
    return Gap(mean, t_975(left) * allowance * error)


@dataclass
class Race:
    """A race: ask `order`, time one block of each, tell `close_round`, until `is_over`."""

    entrants: Sequence[str]
    max_rounds: int
    slack: Mapping[str, float] = field(default_factory=dict)
    """How far behind the leader an entrant may surely be and stay, where that is not the indifference margin."""
    patient: bool = False
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.running = list(self.entrants)
        """Still in the race: nobody showed that they are slower."""
        self.logs: dict[str, list[float]] = {key: [] for key in self.entrants}
        """Logarithms of each entrant's times, by round from the first; entrants that were dropped have fewer."""
        self.rounds = 0
        self._settled = len(self.running) < 2

    @property
    def is_over(self) -> bool:
        """Whether more rounds can't change the choice, or may not be had."""
        return self._settled or self.rounds >= self.max_rounds

    def order(self) -> list[str]:
        """Whom to time in this round, in this order."""
        return self.rng.sample(self.running, len(self.running))

    def close_round(self, us: Mapping[str, float]) -> None:
        """Take in a round: the time of every entrant that is still running."""
        for key in self.running:
            self.logs[key].append(math.log(us[key]))
        self.rounds += 1
        last = self.rounds >= self.max_rounds
        if self.rounds >= (PATIENT_ROUNDS if self.patient and not last else FIRST_TEST):
            self._test()
        elif last or (self.rounds >= 2 and not self.patient):
            self._drop_far_behind()

    @property
    def leader(self) -> str:
        """The running entrant with the lowest mean; before the first round, the first."""
        if not self.rounds:
            return self.running[0]
        return min(self.running, key=lambda key: winsorised(self.logs[key])[0])

    def gap(self, key: str, other: str) -> Gap:
        """How much slower an entrant is than another, over the rounds that both ran."""
        return gap(self.logs[key], self.logs[other], len(self.running))

    def _drop_far_behind(self) -> None:
        ahead = self.logs[min(self.running, key=lambda key: median(self.logs[key]))]
        self._keep(
            key for key in self.running if min(a - b for a, b in zip(self.logs[key], ahead, strict=True)) <= FAR_BEHIND
        )

    def _test(self) -> None:
        leader = self.leader
        gaps = {key: self.gap(key, leader) for key in self.running if key != leader}
        # Beyond the margin *and* surely slower. Whoever is surely slower by less is a tie: dropping it would leave the
        # set of ties, and so the winner, to the noise.
        dropped = {
            key for key, found in gaps.items() if found.is_slower and found.mean > self.slack.get(key, INDIFFERENCE)
        }
        self._keep(key for key in self.running if key not in dropped)
        self._settled = self._settled or all(
            found.mean - found.half_width >= -INDIFFERENCE for key, found in gaps.items() if key not in dropped
        )

    def _keep(self, keys: Iterable[str]) -> None:
        self.running = list(keys)
        self._settled = len(self.running) < 2


def is_patient(entrants: int, round_us: float) -> bool:
    """Whether a race of so many, whose round takes so long, should drop nobody before round 10."""
    cost_us = PATIENT_ROUNDS * round_us
    return cost_us <= PATIENT_US or (entrants <= PATIENT_ENTRANTS and cost_us <= RACE_CAP_US)


def cap_s(round_us: float) -> float:
    """Seconds after which a race begins no more rounds: enough for ten, and 0.4 at least."""
    return max(RACE_CAP_US, 10 * round_us) / 1e6


def block_launches(us: float, *, screen: bool = False) -> int:
    """Launches of one block: about 300 us of work, at least 5 of short ones and at most 20; 5 in the screen.

    Args:
        us: microseconds of one launch, of the fastest candidate: all of a race have blocks of one length.
        screen: whether the block is the screen's.
    """
    if us >= 2000:
        return 1
    least = 5 if us < 50 else 2
    return min(max(math.ceil(300 / us), least), 5 if screen else 20)
