"""cuDNN's numerical notes on candidates. They can't be read, only filtered by: so one asks what a filter leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from tunefarm.engines.cudnn_refusal import declining
from tunefarm.model.candidate import Candidate, Note
from tunefarm.model.errors import Declined

PYTHON_ENGINES = 20_000
"""Ids from here on are the frontend's python engines, of which cuDNN notes nothing."""


def noted(cudnn: Any, new_graph: Callable[[], Any], candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates with their notes.

    Those whose knobs tell all are made again under a filter, an engine's all at once, and by halves where they differ.
    The others are known by their heuristic's list alone: what any of it has, each of them is taken to have.

    Args:
        cudnn: the frontend.
        new_graph: makes the problem's graph, not yet validated. Costs about a millisecond.
        candidates: of the graph's problem.
    """
    backend = [c for c in candidates if c.engine_id is not None and c.engine_id < PYTHON_ENGINES]
    made = sorted((c for c in backend if c.replayable), key=lambda c: c.engine_id or 0)
    groups = [list(group) for _, group in groupby(made, key=lambda c: c.engine_id)]
    listed: dict[str, list[Candidate]] = {}
    for candidate in backend:
        if not candidate.replayable:
            listed.setdefault(candidate.proposed_by, []).append(candidate)
    notes: dict[str, list[Note]] = {candidate.key: [] for candidate in candidates}
    for note in Note:
        filters = _Filters(cudnn, new_graph, note)
        found = [candidate for group in groups for candidate in filters.having(group)]
        for mode, group in listed.items():
            found += group if filters.any_of_list_has(mode) else ()
        for candidate in found:
            notes[candidate.key].append(note)
    return tuple(replace(candidate, notes=tuple(notes[candidate.key])) for candidate in candidates)


class _Filters:
    """Asks who of a problem's candidates has one note."""

    def __init__(self, cudnn: Any, new_graph: Callable[[], Any], note: Note) -> None:
        self._cudnn = cudnn
        self._new_graph = new_graph
        self._note = next(value for name, value in cudnn.numerical_note.__members__.items() if name.lower() == note)

    def having(self, group: Sequence[Candidate]) -> list[Candidate]:
        """Those of one engine that have the note."""
        names = self._cudnn.knob_type.__members__

        def make(graph: Any) -> None:
            for candidate in group:
                graph.create_execution_plan(candidate.engine_id, {names[name]: v for name, v in candidate.knobs})

        if not self._leaves("select_numeric_notes", make):
            return []
        if len(group) == 1 or not self._leaves("deselect_numeric_notes", make):
            return list(group)
        half = len(group) // 2
        return self.having(group[:half]) + self.having(group[half:])

    def any_of_list_has(self, mode: str) -> bool:
        """Whether any that a heuristic mode lists has the note."""
        heuristic = self._cudnn.heur_mode.__members__[mode]
        return self._leaves("select_numeric_notes", lambda graph: graph.create_execution_plans([heuristic]))

    def _leaves(self, filtering: str, make: Callable[[Any], None]) -> bool:
        """Whether a filter leaves any of the plans that are made."""
        graph = self._new_graph()
        try:
            with declining(self._cudnn):
                graph.validate()
                graph.build_operation_graph()
                make(graph)
                getattr(graph, filtering)([self._note])
                graph.check_support()
        except Declined:
            return False
        return True
