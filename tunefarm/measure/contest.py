"""One problem's session, from built plans to outcomes: qualify, screen, race, confirm, decide."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence

from tunefarm.measure.choice import Traits, choose, is_gain, stand, win_reason
from tunefarm.measure.entry import Entry, Samples
from tunefarm.measure.handling import Handling
from tunefarm.measure.racing import Gap, Kind, Race, Screen, cap_s, gap, is_patient
from tunefarm.measure.timing import Method, Rotation, Timer
from tunefarm.model.candidate import Plan
from tunefarm.model.trial import Outcome, Standing

FRESH_ROUNDS = 10
_LEAST_FRESH_ROUNDS = 3
"""Even of candidates so slow that more would take too long."""
_FRESH_CAP_S = 2.0
_SINGLE_RETRIES = 1
_CHEAP_US = 50e3
"""What a second look at a candidate's block in the screen may take."""
NOT_CAPTURED = "it can't be captured into a CUDA graph, as the others were timed"


class Contest:
    """The candidates of one problem, against each other.

    Whoever falls out after others were judged against it sets the contest back to the screen, without it.

    Args:
        plans: of the candidates, in any order.
        handling: what is done with each.
        timer: how they are timed.
        max_rounds: of the race.
        incumbent: key of the stored winner.
        rng: orders the rounds.
    """

    def __init__(
        self,
        *,
        plans: Sequence[Plan],
        handling: Handling,
        timer: Timer,
        max_rounds: int,
        incumbent: str | None,
        rng: random.Random,
    ) -> None:
        self._entries = [Entry(plan) for plan in plans]
        self._by_key = {entry.key: entry for entry in self._entries}
        self._handling = handling
        self._timer = timer
        self._max_rounds = max_rounds
        self._incumbent = incumbent
        self._rng = rng

    def run(self) -> tuple[Outcome, ...]:
        """Outcomes of all plans, in their order."""
        screen = Screen()
        # The default first: a good early bar spares launches of what is far behind it.
        for entry in sorted(self._entries, key=lambda entry: entry.kind is not Kind.DEFAULT):
            if self._handling.qualify(entry):
                self._screen(screen, entry)
        while any(self._in_play()) and not self._decide(screen):
            screen = Screen()
            for entry in self._in_play():
                entry.race = entry.fresh = entry.prepared = None
                entry.screened = ""
                self._screen(screen, entry)
        return tuple(entry.outcome for entry in self._entries if entry.outcome)

    def _in_play(self) -> Iterable[Entry]:
        return (entry for entry in self._entries if entry.outcome is None)

    def _screen(self, screen: Screen, entry: Entry) -> None:
        """Take a verified candidate through the screen. Times that were taken before are not taken again.

        Whoever seems too slow is timed once more and judged by its least time: a disturbance only ever adds.
        """
        kind, bar = entry.kind, screen.bar(entry.kind)
        if not screen.passes_first(kind, entry.least_us) and not entry.single and not self._handling.time_single(entry):
            return
        if not screen.passes_first(kind, entry.least_us):
            entry.screened = f"screened: {entry.least_us / bar:.1f}x the best at its first launches"
            return
        while entry.single is None or (
            not screen.passes_second(kind, entry.least_us) and len(entry.single.us) <= _SINGLE_RETRIES
        ):
            if not self._handling.time_single(entry):
                return
        if not screen.passes_second(kind, entry.least_us):
            entry.screened = f"screened: {entry.least_us / bar:.1f}x the best at a single launch"
            return
        if entry.screen is None and not self._time_screen_block(entry, entry.least_us):
            return
        assert entry.screen
        leader = screen.keep(entry.key, kind, min(entry.screen.us))
        if leader is not None:
            self._recheck_leader(screen, leader)

    def _time_screen_block(self, entry: Entry, single_us: float) -> bool:
        rotation = self._handling.rotation(single_us, screen=True)
        prepared = self._handling.prepare(entry, rotation, self._timer.method(single_us))
        us = self._handling.sample_to_screen(entry, prepared) if prepared else None
        if prepared is None or us is None:
            return False
        entry.screen = Samples(prepared.method, rotation.launches, [us])
        entry.prepared = prepared
        return self._handling.recheck(entry, prepared)

    def _recheck_leader(self, screen: Screen, key: str) -> None:
        leader = self._entry(key)
        us = self._handling.sample(leader, leader.prepared) if leader.prepared else None
        if us is not None and leader.screen:
            leader.screen.us.append(us)
            screen.recheck(key, us)

    def _decide(self, screen: Screen) -> bool:
        """Race who passed the screen, choose, confirm, and set every outcome. False if somebody fell out meanwhile."""
        if any(self._entry(key).outcome for key in screen.kept):
            return False
        field = self._field(screen)
        race = self._race(field) if field else None
        if race is None:
            return False
        traits = {entry.key: self._traits(entry) for entry in field}
        choice = choose(race, traits)
        finalists = self._finalists(race, choice)
        if not self._time_afresh(finalists) or not self._handling.prove(finalists):
            return False
        winner = self._unless_default(self._entry(choice), finalists)
        if not self._handling.prove_winner(winner):
            return False
        for entry in finalists:
            if (entry is winner or entry.kind is not Kind.ORDINARY) and not self._handling.time_in_use(entry):
                return False
        self._finish(race, winner, traits)
        return True

    def _look_again(self, screen: Screen) -> bool:
        """Time the blocks of those that the screen would leave out once more. False if somebody fell out."""
        launches = self._handling.rotation(min(screen.kept.values())).launches
        near = screen.field(launches)
        for key in [key for key in screen.kept if key not in near]:
            entry = self._entry(key)
            prepared, samples = entry.prepared, entry.screen
            if not prepared or not samples:  # it was looked at before somebody fell out
                continue
            if entry.least_us * prepared.rotation.launches * self._timer.screen_samples >= _CHEAP_US:
                continue
            us = self._handling.sample_to_screen(entry, prepared)
            if us is None:
                return False
            samples.us.append(us)
            screen.recheck(key, us)
        return True

    def _field(self, screen: Screen) -> list[Entry]:
        """Who races, with their blocks made. Empty if somebody fell out meanwhile."""
        if not self._look_again(screen):
            return []
        best_us = min(screen.kept.values())
        rotation, method = self._handling.rotation(best_us), self._timer.method(best_us)
        field = [self._entry(key) for key in screen.field(rotation.launches)]
        for key, us in screen.kept.items():
            self._entry(key).screened = f"screened: {us / best_us:.1f}x the best"
        if not all(self._prepare(entry, rotation, method) for entry in field):
            return []
        comparable = [entry for entry in field if entry.race and entry.race.method == method]
        if not comparable:  # no graph could be captured of any
            comparable = field
        for entry in field:
            assert entry.prepared
            entry.screened = "" if entry in comparable else f"screened: {NOT_CAPTURED}: {entry.prepared.uncaptured}"
        return comparable

    def _prepare(self, entry: Entry, rotation: Rotation, method: Method) -> bool:
        entry.prepared = self._handling.prepare(entry, rotation, method)
        if entry.prepared is None:
            return False
        entry.race = Samples(entry.prepared.method, rotation.launches)
        return True

    def _race(self, field: Sequence[Entry]) -> Race | None:
        """Run the race to its end, and judge once more what its blocks leave. None if somebody fell out."""
        round_us = sum(entry.median_us * entry.prepared.rotation.launches for entry in field if entry.prepared)
        race = Race(
            [entry.key for entry in field],
            self._max_rounds,
            {entry.key: self._traits(entry).slack for entry in field},
            is_patient(len(field), round_us),
            self._rng,
        )
        began = time.monotonic()
        while not race.is_over and time.monotonic() - began < cap_s(round_us):
            us = self._round([self._entry(key) for key in race.order()])
            if us is None:
                return None
            for key, figure in us.items():
                samples = self._entry(key).race
                assert samples
                samples.us.append(figure)
            race.close_round(us)
        checked = [self._handling.recheck(entry, entry.prepared) for entry in field if entry.prepared]
        return race if all(checked) else None

    def _round(self, order: Iterable[Entry]) -> dict[str, float] | None:
        """One block of each. None if somebody fell out."""
        us = {}
        for entry in order:
            figure = self._handling.sample(entry, entry.prepared) if entry.prepared else None
            if figure is None:
                return None
            us[entry.key] = figure
        return us

    def _finalists(self, race: Race, choice: str) -> list[Entry]:
        """Who gets fresh rounds: the choice, the one nearest to it, cuDNN's default, and torch's fastest."""
        others = [key for key in race.running if key != choice] or [key for key in race.logs if key != choice]
        nearest = sorted(others, key=lambda key: race.gap(key, choice).mean)[:1]
        raced = [self._entry(key) for key in race.logs]
        defaults = [entry.key for entry in raced if entry.kind is Kind.DEFAULT]
        baselines = sorted((e for e in raced if e.kind is Kind.BASELINE), key=lambda entry: entry.median_us)
        keys = dict.fromkeys([choice, *nearest, *defaults, *(entry.key for entry in baselines[:1])])
        return [self._entry(key) for key in keys]

    def _time_afresh(self, finalists: Sequence[Entry]) -> bool:
        """Rounds that had no part in the choice: the best of many noisy times is too good to be reported."""
        for entry in finalists:
            assert entry.race
            entry.fresh = Samples(entry.race.method, entry.race.launches)
        began = time.monotonic()
        for i in range(FRESH_ROUNDS):
            if i >= _LEAST_FRESH_ROUNDS and time.monotonic() - began > _FRESH_CAP_S:
                break
            us = self._round(self._rng.sample(finalists, len(finalists)))
            if us is None:
                return False
            for entry in finalists:
                assert entry.fresh
                entry.fresh.us.append(us[entry.key])
        checked = [self._handling.recheck(entry, entry.prepared) for entry in finalists if entry.prepared]
        return all(checked)

    def _unless_default(self, choice: Entry, finalists: Sequence[Entry]) -> Entry:
        """The choice; or cuDNN's default where the fresh rounds show no gain over it."""
        default = next((entry for entry in finalists if entry.kind is Kind.DEFAULT), choice)
        if default is choice or choice.key == self._incumbent or is_gain(_fresh_gap(default, choice)):
            return choice
        return default

    def _finish(self, race: Race, winner: Entry, traits: Mapping[str, Traits]) -> None:
        behind = {}
        for key in race.logs:
            entry = self._entry(key)
            if entry is not winner:
                behind[key] = _fresh_gap(entry, winner) if entry.fresh else race.gap(key, winner.key)
        confirmed_us = {key: entry.median_us for key in race.logs if (entry := self._entry(key)).fresh}
        for entry in list(self._in_play()):
            if entry is winner:
                standing = Standing.WON
                why = win_reason(winner.key, behind, traits, running=race.running, confirmed_us=confirmed_us)
            elif entry.key in behind:
                running = entry.key in race.running
                standing, why = stand(entry.key, winner.key, behind[entry.key], traits, running=running)
            else:
                standing, why = Standing.SCREENED, entry.screened
            entry.finish(standing, f"{why}; products in TF32" if self._handling.used_tf32(entry) else why)

    def _traits(self, entry: Entry) -> Traits:
        workspace_bytes, incumbent = entry.plan.workspace_bytes, entry.key == self._incumbent
        return Traits(entry.label, entry.kind, workspace_bytes, entry.error, incumbent)

    def _entry(self, key: str) -> Entry:
        return self._by_key[key]


def _fresh_gap(entry: Entry, other: Entry) -> Gap:
    """How much slower one is than another, by the fresh rounds of both."""
    assert entry.fresh
    assert other.fresh
    return gap([math.log(us) for us in entry.fresh.us], [math.log(us) for us in other.fresh.us])
