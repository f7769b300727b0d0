"""Which of the entrants of a race is the winner, and why each of them stands where it stands. Pure.

Who is behind the race's leader by no more than the indifference margin, or than noise may well account for, is tied
with it. Ties are settled by a fixed order and not by the day's noise, so that two boards choose alike:

1. the stored winner stays, unless the leader is surely faster, and by 1 % or more;
2. cuDNN's default stays, unless what would replace it is surely faster, and by more than the indifference margin: a
   gain that can't be told from noise is no reason to depart from what everybody runs;
3. the smaller workspace; 4. the smaller error, to two digits; 5. the name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tunefarm.measure.racing import INDIFFERENCE, Gap, Kind, Race
from tunefarm.model.trial import Standing

INCUMBENT_SLACK = math.log1p(0.01)
"""The stored winner is replaced only by what is 1 % faster: what is in use should not change with the day's noise."""


@dataclass(frozen=True)
class Traits:
    """What the choice knows of an entrant beside its times."""

    label: str
    kind: Kind
    workspace_bytes: int
    error: float
    """Relative error (L2) of its worst output."""
    incumbent: bool = False

    @property
    def slack(self) -> float:
        """How far behind the leader it may surely be and stay in the race."""
        return INCUMBENT_SLACK if self.incumbent else INDIFFERENCE

    @property
    def preference(self) -> tuple[bool, int, float, str]:
        """Sorts ties, the preferred one first; the stored winner aside, which has a rule of its own."""
        return self.kind is not Kind.DEFAULT, self.workspace_bytes, float(f"{self.error:.1e}"), self.label


def choose(race: Race, traits: Mapping[str, Traits]) -> str:
    """The winner among the entrants that are still running; there must be one."""
    for key in race.running:
        if traits[key].incumbent:
            return key
    default = next((key for key in race.logs if traits[key].kind is Kind.DEFAULT), None)
    if default in race.running:
        return default
    leader = race.leader
    ties = [leader, *(key for key in race.running if key != leader and race.gap(key, leader).is_tie)]
    if default is not None:
        ties = [key for key in ties if is_gain(race.gap(default, key))] or [leader]
    return min(ties, key=lambda key: traits[key].preference)


def is_gain(default_behind: Gap) -> bool:
    """Whether replacing the default is worth it, by the gap of the default behind what would replace it."""
    return default_behind.is_slower and default_behind.mean > INDIFFERENCE


def win_reason(winner: str, behind: Mapping[str, Gap], traits: Mapping[str, Traits]) -> str:
    """Why the winner won, in words.

    Args:
        winner: who won.
        behind: gaps of the others behind it.
        traits: of all entrants.
    """
    won = traits[winner]
    if not behind:
        return "the only candidate in the race"
    if won.kind is Kind.DEFAULT:
        return "cuDNN's default; no significant gain over it"
    default = next((key for key in behind if traits[key].kind is Kind.DEFAULT), None)
    nearest = min(behind, key=lambda key: behind[key].mean)
    if won.incumbent and behind[nearest].mean <= INDIFFERENCE:
        return "the stored winner; nothing is 1 % faster"
    if default is not None:
        return f"{behind[default].percent:.1f} % faster than {traits[default].label}, cuDNN's default"
    return f"{behind[nearest].percent:.1f} % faster than {traits[nearest].label}"


def stand(key: str, winner: str, behind: Gap, traits: Mapping[str, Traits], *, running: bool) -> tuple[Standing, str]:
    """Standing of an entrant that did not win, with its reason in words.

    Args:
        key: the entrant.
        winner: who won.
        behind: its gap behind the winner.
        traits: of all entrants.
        running: whether it was still in the race at its end.
    """
    loser, won = traits[key], traits[winner]
    if not running and behind.mean > 0:
        return Standing.SLOWER, f"{behind.percent:.1f} % slower than {won.label}"
    if won.incumbent:
        return Standing.TIED, f"tied; the stored winner {won.label} stays until something is 1 % faster"
    if won.kind is Kind.DEFAULT:
        return Standing.TIED, f"no significant gain over {won.label}, cuDNN's default"
    figure = f"{behind.percent:+.1f} ± {100 * math.expm1(min(behind.half_width, 1.0)):.1f} %"
    if not behind.is_tie:
        return Standing.TIED, f"not surely slower than {won.label} ({figure})"
    return Standing.TIED, f"tied ({figure}); {_tie_reason(loser, won)}"


def _tie_reason(loser: Traits, won: Traits) -> str:
    if loser.preference < won.preference:
        return f"unlike {won.label}, not surely faster than cuDNN's default"
    if loser.workspace_bytes > won.workspace_bytes:
        needs, against = byte_count(loser.workspace_bytes), byte_count(won.workspace_bytes)
        return f"needs more workspace ({needs} against {against})"
    if loser.preference[2] > won.preference[2]:
        return f"larger error ({loser.error:.1e} against {won.error:.1e})"
    return f"{won.label} comes first by name"


def byte_count(count: int) -> str:
    """A number of bytes for people."""
    if count < 1024:
        return f"{count} B" if count else "0"
    power = min(int(math.log2(count)) // 10, 3)
    return f"{count / 1024**power:.1f} {'KMG'[power - 1]}iB"
