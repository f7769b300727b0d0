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
from collections.abc import Collection, Mapping
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


def win_reason(
    winner: str,
    behind: Mapping[str, Gap],
    traits: Mapping[str, Traits],
    *,
    running: Collection[str],
    confirmed_us: Mapping[str, float],
) -> str:
    """Why the winner won, in words that agree with those of `stand`.

    Args:
        winner: who won.
        behind: gaps of the others behind it.
        traits: of all entrants.
        running: who was still in the race at its end.
        confirmed_us: medians of the fresh rounds, the winner's among them.
    """
    why = _win_reason(winner, behind, traits, running)
    ahead = min(confirmed_us, key=lambda key: confirmed_us[key], default=winner)
    if ahead == winner or math.log(confirmed_us[winner] / confirmed_us[ahead]) <= INDIFFERENCE:
        return why
    lower = 100 * (1 - confirmed_us[ahead] / confirmed_us[winner])
    noise = _half_width(behind[ahead])
    return f"{why}; times are noisy (± {noise}): the median of {traits[ahead].label} is {lower:.1f} % lower"


def _win_reason(winner: str, behind: Mapping[str, Gap], traits: Mapping[str, Traits], running: Collection[str]) -> str:
    won = traits[winner]
    if not behind:
        return "the only candidate in the race"
    if won.kind is Kind.DEFAULT:
        return "cuDNN's default; no significant gain over it"
    default = next((key for key in behind if traits[key].kind is Kind.DEFAULT), None)
    nearest = min(behind, key=lambda key: behind[key].mean)
    if won.incumbent and not _is_slower(behind[nearest], running=nearest in running):
        return "the stored winner; nothing is surely 1 % faster"
    rival = nearest if default is None else default
    gap, words = behind[rival], traits[rival].label + ("" if default is None else ", cuDNN's default")
    if _is_slower(gap, running=rival in running):
        return f"{gap.percent:.1f} % faster than {words}"
    if not gap.is_tie:
        return f"{gap.percent:.1f} % faster than {words}, but not surely (± {_half_width(gap)})"
    return f"tied with {words}; comes first by {_tie_rule(traits[rival], won, running=rival in running)}"


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
    if _is_slower(behind, running=running):
        return Standing.SLOWER, f"{behind.percent:.1f} % slower than {won.label}"
    if won.incumbent:
        return Standing.TIED, f"tied; the stored winner {won.label} stays until something is surely 1 % faster"
    if won.kind is Kind.DEFAULT:
        return Standing.TIED, f"no significant gain over {won.label}, cuDNN's default"
    figure = f"{behind.percent:+.1f} ± {_half_width(behind)}"
    if not behind.is_tie:
        return Standing.TIED, f"not surely slower than {won.label} ({figure})"
    if running and loser.preference < won.preference and any(t.kind is Kind.DEFAULT for t in traits.values()):
        return Standing.TIED, f"tied ({figure}); unlike {won.label}, not surely faster than cuDNN's default"
    return Standing.TIED, f"tied ({figure}); {won.label} comes first by {_tie_rule(loser, won, running=running)}"


def _is_slower(behind: Gap, *, running: bool) -> bool:
    """Whether an entrant lost by its times: dropped from the race, or surely slower in the fresh rounds."""
    return behind.mean > 0 if not running else behind.is_slower and behind.mean > INDIFFERENCE


def _tie_rule(loser: Traits, won: Traits, *, running: bool) -> str:
    """What put the winner before one that is tied with it."""
    if not running or loser.preference < won.preference:
        return "its times in the race"
    if loser.workspace_bytes > won.workspace_bytes:
        return f"less workspace ({byte_count(won.workspace_bytes)} against {byte_count(loser.workspace_bytes)})"
    if loser.preference[2] > won.preference[2]:
        return f"the smaller error ({won.error:.1e} against {loser.error:.1e})"
    return "name"


def _half_width(gap: Gap) -> str:
    return f"{100 * math.expm1(min(gap.half_width, 1.0)):.1f} %"


def byte_count(count: int) -> str:
    """A number of bytes for people."""
    if count < 1024:
        return f"{count} B" if count else "0"
    power = min(int(math.log2(count)) // 10, 3)
    return f"{count / 1024**power:.1f} {'KMG'[power - 1]}iB"
