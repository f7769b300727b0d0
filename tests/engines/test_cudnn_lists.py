"""What lists may hold on machines that are not at hand: markers, python engines, knobs without a name.

The graphs here are stand-ins for the frontend's, since only a GPU makes it list these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace

import pytest

from tunefarm.engines.cudnn_lists import PlanLists
from tunefarm.model.candidate import NUMERICAL_NOTES, Candidate
from tunefarm.model.errors import Declined


class Knob(IntEnum):
    NOT_SET = 0
    TILE_SIZE = 2
    KERNEL_CFG = 12
    TILE_M = 26


class HeurMode(IntEnum):
    A = 0
    B = 1
    FALLBACK = 2


class NotSupportedError(Exception):
    pass


CUDNN = SimpleNamespace(knob_type=Knob, heur_mode=HeurMode, cudnnGraphNotSupportedError=NotSupportedError)


@dataclass
class Entry:
    engine_id: int
    name: str = ""
    knobs: dict[Knob, int] = field(default_factory=dict)


class Graph:
    """As much of a `pygraph` as lists are read from."""

    def __init__(self, lists: dict[HeurMode, list[Entry]]) -> None:
        self._lists = lists
        self.plans: list[Entry] = []

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[HeurMode]) -> None:
        self.plans = [entry for mode in modes for entry in self._lists.get(mode, [])]
        if not self.plans:
            raise NotSupportedError(f"nothing in {modes[0].name}")

    def create_execution_plan(self, engine_id: int, knobs: dict[Knob, int]) -> None:
        self.plans = [*self.plans, Entry(engine_id, f"eng{engine_id}", knobs)]

    def get_plan_name_at_index(self, place: int) -> str:
        return self.plans[place].name

    def get_engine_and_knobs_at_index(self, place: int) -> tuple[int, dict[Knob, int]]:
        entry = self.plans[place]
        if entry.engine_id < 0:
            raise NotImplementedError("a marker has no engine")
        return entry.engine_id, entry.knobs


def lists(*, dynamic: bool = False, **by_mode: list[Entry]) -> PlanLists:
    held = {HeurMode[mode]: entries for mode, entries in by_mode.items()}
    return PlanLists(CUDNN, lambda: Graph(held), dynamic=dynamic)


PYTHON = Entry(20517, "sdpa_fwd_prefill_sm90[TILE_M=128]", {Knob.TILE_M: 128})
BACKEND = Entry(9, "eng9_k40=3", {Knob.TILE_M: 3})
UNNAMED = Entry(32, "eng32_k2=2_k6=0_k22=2", {Knob.TILE_SIZE: 2, Knob.NOT_SET: 2})


def test_markers_are_no_candidates_and_take_no_rank() -> None:
    candidates = lists(A=[Entry(-1), PYTHON, Entry(-2), BACKEND]).candidates()
    assert [(c.engine_id, c.rank) for c in candidates] == [(20517, 0), (9, 1)]


def test_a_python_engine_is_a_candidate_like_any_other() -> None:
    first, _ = lists(A=[PYTHON, BACKEND]).candidates()
    assert first.is_default
    assert first == Candidate(
        engine="cudnn", name="sdpa_fwd_prefill_sm90[TILE_M=128]", engine_id=20517, knobs=(("TILE_M", 128),)
    )


def test_a_python_engine_has_no_dynamic_form() -> None:
    (candidate,) = lists(A=[PYTHON, BACKEND], dynamic=True).candidates()
    assert (candidate.engine_id, candidate.dynamic) == (9, True)


def test_a_knob_without_a_name_makes_a_candidate_that_only_a_list_can_give() -> None:
    (candidate,) = lists(A=[UNNAMED]).candidates()
    assert not candidate.replayable
    assert candidate.knobs == (("TILE_SIZE", 2),), "one key for all unnamed knobs says nothing"
    graph, place = lists(A=[BACKEND, UNNAMED]).find(candidate)
    assert graph.plans[place] is UNNAMED
    with pytest.raises(Declined, match="not enough to make it again"):
        lists(A=[BACKEND]).find(candidate)


def test_plans_that_differ_in_their_name_alone_are_two() -> None:
    twin = Entry(32, "eng32_k2=2_k6=1_k22=2", UNNAMED.knobs)
    first, second = lists(A=[UNNAMED, twin]).candidates()
    assert first.key != second.key
    graph, place = lists(A=[twin, UNNAMED]).find(second)
    assert graph.plans[place] is twin


def test_a_plan_of_two_modes_belongs_to_the_first() -> None:
    other = Entry(7, "eng7")
    candidates = lists(A=[BACKEND], B=[other, BACKEND], FALLBACK=[other]).candidates()
    assert [(c.name, c.proposed_by, c.rank) for c in candidates] == [("eng9_k40=3", "A", 0), ("eng7", "B", 0)]


def test_modes_without_plans_leave_those_of_the_others() -> None:
    (candidate,) = lists(FALLBACK=[BACKEND]).candidates()
    assert candidate.proposed_by == "FALLBACK"
    assert not candidate.is_default


def test_every_numerical_note_of_cudnn_has_its_word():
    cudnn = pytest.importorskip("cudnn")
    assert {note.lower() for note in cudnn.numerical_note.__members__} == set(NUMERICAL_NOTES)


@pytest.mark.parametrize("entries", [[], [Entry(-1)]])
def test_no_plan_in_any_mode_is_declined(entries: list[Entry]) -> None:
    with pytest.raises(Declined, match=r"nothing in A|list no plan"):
        lists(A=entries).candidates()
    with pytest.raises(Declined, match=r"nothing in A|not enough|makes"):
        lists(A=entries).find(Candidate(engine="cudnn", name="eng4_k24=3", engine_id=4, knobs=(("KERNEL_CFG", 3),)))


def test_an_unlisted_plan_is_made_and_named_the_same() -> None:
    wanted = Candidate(engine="cudnn", name="eng4", engine_id=4, knobs=(("KERNEL_CFG", 3),))
    graph, place = lists(A=[BACKEND]).find(wanted)
    assert (graph.plans[place].engine_id, graph.plans[place].knobs) == (4, {Knob.KERNEL_CFG: 3})
