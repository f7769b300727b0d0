"""The plans that cuDNN's heuristics list for one problem, found again by what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tunefarm.engines.cudnn_notes import PYTHON_ENGINES
from tunefarm.engines.cudnn_refusal import declining
from tunefarm.engines.cudnn_space import SPACE, settings
from tunefarm.model.candidate import Candidate
from tunefarm.model.errors import Declined

MODES = ("A", "B", "FALLBACK")
"""Heuristic modes, in the order in which they are asked."""
_UNNAMED_KNOB = "NOT_SET"
"""The frontend's name for every knob that it has no name for: they share one key, and all values but one are lost."""


@dataclass(frozen=True)
class _List:
    """One mode's graph, and what the mode proposed on it, by place. Plans made later by hand are on the graph alone."""

    graph: Any
    proposed: tuple[tuple[int, Candidate], ...]


class PlanLists:
    """One problem's heuristic lists, each asked for when first needed and on a graph of its own.

    A graph a mode, since a merged list doesn't tell which mode put a plan where. A plan's place in a list is looked up
    anew each time and kept nowhere: it means nothing outside the graph object that listed it.
    """

    def __init__(self, cudnn: Any, new_graph: Callable[[], Any], *, dynamic: bool) -> None:
        """Nothing is asked yet.

        Args:
            cudnn: the frontend.
            new_graph: makes the problem's graph, not yet validated.
            dynamic: whether those graphs have dynamic shapes.
        """
        self._cudnn = cudnn
        self._new_graph = new_graph
        self._dynamic = dynamic
        self._lists: dict[str, _List | Declined] = {}

    def candidates(self) -> tuple[Candidate, ...]:
        """Every listed plan once, under the mode that named it first.

        Raises:
            Declined: no mode lists any; the reason is that of the first.
        """
        found: dict[str, Candidate] = {}
        for listed in self._available():
            for _, candidate in listed.proposed:
                found.setdefault(candidate.key, candidate)
        if not found:
            raise self._refusal()
        return tuple(found.values())

    def widened(self, *, everything: bool) -> tuple[Candidate, ...]:
        """Plans beyond the listed ones: see `cudnn_space`. Those that cuDNN rejects at once are left out.

        Raises:
            Declined: no mode lists any plan, so that there is no graph to ask.
        """
        listed = self.candidates()
        graph = next(iter(self._available())).graph
        known = {candidate.key for candidate in listed}
        found: dict[str, Candidate] = {}
        for engine_id, knobs in settings(self._cudnn, graph, listed, everything=everything):
            try:
                _, made = self._create(graph, engine_id, knobs)
            except Declined:
                continue
            if made.key not in known and made.replayable and dict(made.knobs) == dict(knobs):
                found.setdefault(made.key, replace(made, proposed_by=SPACE, rank=len(found)))
        return tuple(found.values())

    def find(self, candidate: Candidate) -> tuple[Any, int]:
        """The graph that a candidate can be built on, and its place on that graph now.

        A candidate that no mode lists is made from its engine and knobs, if those tell all.

        Raises:
            Declined: it is not listed and can't be made, or what cuDNN makes of it is another plan.
        """
        for listed in self._available():
            for place, here in listed.proposed:
                if here == candidate:
                    return listed.graph, place
        return self._make(candidate)

    def _make(self, candidate: Candidate) -> tuple[Any, int]:
        if candidate.engine_id is None or not candidate.replayable:
            raise Declined(f"{candidate.label} is not listed here, and its knobs are not enough to make it again")
        names = self._cudnn.knob_type.__members__
        unknown = [name for name, _ in candidate.knobs if name not in names]
        if unknown:
            raise Declined(f"this cuDNN frontend has no knob named {', '.join(unknown)}")
        graph = next((listed.graph for listed in self._available()), None)
        if graph is None:
            raise self._refusal()
        place, made = self._create(graph, candidate.engine_id, dict(candidate.knobs))
        if made != candidate:
            raise Declined(f"asked for {candidate.label}, cuDNN makes {made.label}")
        return graph, place

    def _create(self, graph: Any, engine_id: int, knobs: Mapping[str, int]) -> tuple[int, Candidate]:
        """Make a plan by hand on a graph, which appends it; where it is now, and what it became."""
        names = self._cudnn.knob_type.__members__
        with declining(self._cudnn):
            graph.create_execution_plan(engine_id, {names[name]: value for name, value in knobs.items()})
        place = len(graph.plans) - 1
        return place, _candidate(graph, place, dynamic=self._dynamic)

    def _available(self) -> Iterator[_List]:
        for mode in MODES:
            listed = self._list(mode)
            if isinstance(listed, _List):
                yield listed

    def _list(self, mode: str) -> _List | Declined:
        if mode not in self._lists:
            try:
                self._lists[mode] = self._ask(mode)
            except Declined as refusal:
                self._lists[mode] = refusal
        return self._lists[mode]

    def _ask(self, mode: str) -> _List:
        with declining(self._cudnn):
            graph = self._new_graph()
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([self._cudnn.heur_mode.__members__[mode]])
            return _List(graph, tuple(_listed(graph, dynamic=self._dynamic, mode=mode)))

    def _refusal(self) -> Declined:
        first = self._list(MODES[0])
        return Declined(str(first) if isinstance(first, Declined) else "its heuristics list no plan")


def _listed(graph: Any, *, dynamic: bool, mode: str) -> Iterator[tuple[int, Candidate]]:
    """Each plan that a mode put on a graph, with its place. Entries with negative ids are markers, not plans."""
    rank = 0
    for place, entry in enumerate(graph.plans):
        if entry.engine_id < 0 or (dynamic and entry.engine_id >= PYTHON_ENGINES):
            continue  # they use no kernel cache: a dynamic one would be a static one
        yield place, _candidate(graph, place, dynamic=dynamic, mode=mode, rank=rank)
        rank += 1


def _candidate(graph: Any, place: int, *, dynamic: bool, mode: str = "", rank: int = 0) -> Candidate:
    """The candidate that the plan at a place is."""
    engine_id, choices = graph.get_engine_and_knobs_at_index(place)
    knobs = {knob.name: int(value) for knob, value in choices.items()}
    replayable = knobs.pop(_UNNAMED_KNOB, None) is None
    return Candidate(
        engine="cudnn",
        name=graph.get_plan_name_at_index(place),
        engine_id=int(engine_id),
        knobs=tuple(sorted(knobs.items())),
        dynamic=dynamic,
        replayable=replayable,
        proposed_by=mode,
        rank=rank,
    )
