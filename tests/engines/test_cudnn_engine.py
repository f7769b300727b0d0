"""The engine `cudnn` over the real library, which plans, compiles and serializes without a GPU.

What touches cuDNN runs in a child: planning may kill its process, as one test shows.
"""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.cudnn_host import CudnnHost
from tests.engines.problems import ALL, CONV, MATMUL, MATMUL_LARGER, REFUSED, SDPA
from tunefarm.engines.cudnn import CudnnEngine
from tunefarm.engines.cudnn_blob import read_blob
from tunefarm.engines.cudnn_library import load_cudnn
from tunefarm.engines.cudnn_lists import PlanLists
from tunefarm.farm.isolation import ChildDiedError, JobRaisedError
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem

pytestmark = pytest.mark.cudnn

UNLISTED = Candidate(engine="cudnn", name="eng4_k24=5", engine_id=4, knobs=(("KERNEL_CFG", 5),))
"""A plan of matmul engine 4 that exists, and that the heuristics don't list for `MATMUL`."""


@cache
def engine_in_child(profile: str) -> CudnnEngine:
    return CudnnEngine(profile)


def propose(profile: str, problem: Problem, search: Search) -> Proposal:
    return engine_in_child(profile).propose(problem, search)


def build(profile: str, problem: Problem, candidate: Candidate) -> Plan | str:
    """The plan, or the reason why there is none."""
    try:
        return engine_in_child(profile).build(problem, candidate)
    except Declined as refusal:
        return str(refusal)


@pytest.mark.parametrize("problem", ALL.values(), ids=ALL)
def test_every_operation_has_candidates_and_the_heuristic_s_first_choice_leads(
    cudnn_child: CudnnHost, h200_profile: str, problem: Problem
) -> None:
    proposal = cudnn_child.run(propose, h200_profile, problem, Search())
    assert proposal.refusal is None
    first, *rest = proposal.candidates
    assert first.is_default
    assert not any(c.is_default for c in rest)
    assert len({c.key for c in proposal.candidates}) == len(proposal.candidates)
    assert all(c.engine == "cudnn" and c.replayable and not c.dynamic for c in proposal.candidates)


def test_each_candidate_tells_the_mode_that_named_it_first_and_its_rank_there(
    cudnn_child: CudnnHost, h200_profile: str
) -> None:
    by_mode: dict[str, list[int]] = {}
    for candidate in cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates:
        by_mode.setdefault(candidate.proposed_by, []).append(candidate.rank)
    assert set(by_mode) == {"A", "FALLBACK"}, "B repeats A's list for a matmul"
    assert by_mode["A"] == list(range(8))
    assert by_mode["FALLBACK"] == list(range(3))


def test_a_mode_that_raises_is_an_empty_list(cudnn_child: CudnnHost, h200_profile: str) -> None:
    proposal = cudnn_child.run(propose, h200_profile, SDPA, Search())
    assert {c.proposed_by for c in proposal.candidates} == {"A"}, "attention has no fallback plan; asked for, it raises"


def test_a_refused_problem_has_one_short_line_as_its_reason(cudnn_child: CudnnHost, h200_profile: str) -> None:
    proposal = cudnn_child.run(propose, h200_profile, REFUSED, Search(dynamic=True))
    assert proposal.candidates == ()
    assert "shared memory" in proposal.refusal
    assert "\n" not in proposal.refusal
    assert len(proposal.refusal) <= 240


def test_two_processes_propose_the_same_identities(cudnn_child: CudnnHost, h200_profile: str) -> None:
    first = [cudnn_child.run(propose, h200_profile, p, Search(dynamic=True)).candidates for p in (MATMUL, SDPA)]
    cudnn_child.stop()
    second = [cudnn_child.run(propose, h200_profile, p, Search(dynamic=True)).candidates for p in (MATMUL, SDPA)]
    assert first == second


@pytest.mark.parametrize("problem", [MATMUL, SDPA, CONV], ids=lambda p: p.op)
def test_a_built_plan_holds_the_engine_and_knobs_of_its_candidate(
    cudnn_child: CudnnHost, h200_profile: str, problem: Problem
) -> None:
    candidates = cudnn_child.run(propose, h200_profile, problem, Search()).candidates
    for candidate in (candidates[0], candidates[-1]):
        plan = cudnn_child.run(build, h200_profile, problem, candidate)
        assert plan.candidate == candidate
        facts = read_blob(plan.blob)
        assert facts.engine_id == candidate.engine_id
        assert set(candidate.knobs) <= set(facts.knobs)
        assert plan.knobs == facts.knobs
        assert plan.workspace_bytes >= 0
        assert plan.build_ms > 0


def test_the_plan_built_last_is_the_one_that_is_serialized(cudnn_child: CudnnHost, h200_profile: str) -> None:
    first, second, *_ = cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates
    plans = [cudnn_child.run(build, h200_profile, MATMUL, c) for c in (first, second, first)]
    knobs = [dict(plan.knobs)["KERNEL_CFG"] for plan in plans]
    assert knobs == [dict(first.knobs)["KERNEL_CFG"], dict(second.knobs)["KERNEL_CFG"], knobs[0]]
    assert plans[0].digest != plans[1].digest


def test_a_candidate_that_the_heuristics_do_not_list_is_built_from_its_knobs(
    cudnn_child: CudnnHost, h200_profile: str
) -> None:
    assert UNLISTED not in cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates
    plan = cudnn_child.run(build, h200_profile, MATMUL, UNLISTED)
    assert dict(plan.knobs)["KERNEL_CFG"] == 5
    again = cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates
    assert UNLISTED not in again, "a plan made by hand is nobody's proposal"


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (replace(UNLISTED, name="eng4_k24=555", knobs=(("KERNEL_CFG", 555),)), "NOT_SUPPORTED"),
        (replace(UNLISTED, name="eng4_k40=1", knobs=(("TILE_M", 1),)), "NOT_SUPPORTED"),
        (replace(UNLISTED, name="eng4_k99=1", knobs=(("FLUX", 1),)), "no knob named FLUX"),
        (replace(UNLISTED, name="eng99", engine_id=99, knobs=()), "Invalid engine id"),
        (replace(UNLISTED, name="sdpa_fwd_prefill_sm999", engine_id=20599, knobs=()), "20599"),
        (replace(UNLISTED, name="eng4_k24=6"), "cuDNN makes cudnn:eng4_k24=5"),
        (
            replace(UNLISTED, name="eng4_k24=7", knobs=(("KERNEL_CFG", 7),), replayable=False),
            "not enough to make it again",
        ),
        (replace(UNLISTED, engine_id=None), "not enough to make it again"),
    ],
    ids=lambda value: value.label if isinstance(value, Candidate) else "",
)
def test_a_candidate_that_can_not_be_had_is_declined(
    cudnn_child: CudnnHost, h200_profile: str, candidate: Candidate, reason: str
) -> None:
    refusal = cudnn_child.run(build, h200_profile, MATMUL, candidate)
    assert isinstance(refusal, str)
    assert reason in refusal
    assert "\n" not in refusal


def build_from_reversed(profile: str, keep: slice) -> bool:
    """Whether candidates of `MATMUL` are built as themselves from lists that come out reversed and cut."""
    engine, cudnn = engine_in_child(profile), load_cudnn()
    candidates = engine.propose(MATMUL, Search()).candidates[::4]

    def new_graph() -> Any:
        graph = engine._new_graph(MATMUL, None, dynamic=False)
        ask = graph.create_execution_plans

        def ask_and_shuffle(modes: list[Any]) -> None:
            ask(modes)
            graph._plans = graph._plans[::-1][keep]

        graph.create_execution_plans = ask_and_shuffle
        return graph

    built = []
    for candidate in candidates:
        graph, place = PlanLists(cudnn, new_graph, dynamic=False).find(candidate)
        graph.build_plan_at_index(place)
        facts = read_blob(graph.serialize(as_bytes=True))
        assert facts.engine_id == candidate.engine_id
        assert set(candidate.knobs) <= set(facts.knobs)
        built.append(candidate.name)
    return built == [c.name for c in candidates]


@pytest.mark.parametrize("keep", [slice(None), slice(1)], ids=["all", "one"])
def test_a_candidate_is_found_by_what_it_is_when_lists_are_reordered_and_shortened(
    cudnn_child: CudnnHost, h200_profile: str, keep: slice
) -> None:
    assert cudnn_child.run(build_from_reversed, h200_profile, keep)


def build_two_shapes(profile: str) -> tuple[list[int], list[bool]]:
    """(kernel cache sizes after each build, whether the two shapes were given one cache)."""
    engine = CudnnEngine(profile)
    sizes, caches = [], []
    for problem in (MATMUL, MATMUL_LARGER):
        candidates = engine.propose(problem, Search(dynamic=True)).candidates
        candidate = next(c for c in candidates if c.dynamic)
        plan = engine.build(problem, candidate)
        assert plan.candidate.dynamic
        (cache_,) = engine._kernel_caches.values()
        caches.append(cache_)
        sizes.append(cache_.size())
    return sizes, [c is caches[0] for c in caches]


def test_dynamic_candidates_of_one_structure_share_compiled_kernels(cudnn_child: CudnnHost, h200_profile: str) -> None:
    sizes, same = cudnn_child.run(build_two_shapes, h200_profile)
    assert all(same)
    assert sizes == [sizes[0]] * 2, "the second shape compiled nothing"
    assert sizes[0] > 0


def test_dynamic_candidates_are_others_than_the_static_ones(cudnn_child: CudnnHost, h200_profile: str) -> None:
    candidates = cudnn_child.run(propose, h200_profile, MATMUL, Search(dynamic=True)).candidates
    static = [c for c in candidates if not c.dynamic]
    assert static == list(cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates)
    assert len({c.key for c in candidates}) == len(candidates) > len(static)


def test_a_graph_without_a_dynamic_form_keeps_its_static_candidates(cudnn_child: CudnnHost, h200_profile: str) -> None:
    candidates = cudnn_child.run(propose, h200_profile, SDPA, Search(dynamic=True)).candidates
    assert candidates
    assert not any(c.dynamic for c in candidates)


def test_an_engine_without_a_device_loads_nothing(cudnn_child: CudnnHost, h200_profile: str) -> None:
    plan = cudnn_child.run(build, h200_profile, MATMUL, UNLISTED)
    with pytest.raises(JobRaisedError, match=r"Declined: .*can't load plans"):
        cudnn_child.run(load, h200_profile, MATMUL, plan)


def load(profile: str, problem: Problem, plan: Plan) -> None:
    engine_in_child(profile).load(problem, plan)


def test_a_profile_that_cudnn_can_not_read_is_declined(cudnn_child: CudnnHost, h200_profile: str) -> None:
    truncated = json.dumps({"deviceVer": json.loads(h200_profile)["deviceVer"]})
    with pytest.raises(JobRaisedError, match="Declined: "):
        cudnn_child.run(make, truncated)


def test_without_a_profile_a_host_without_a_gpu_is_declined(cudnn_child: CudnnHost) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    with pytest.raises(JobRaisedError, match="Declined: no NVIDIA GPU that torch can use"):
        cudnn_child.run(make, None)


def make(profile: str | None) -> None:
    CudnnEngine(profile)


def plan_a_product_of_no_rows(profile: str) -> None:
    """A graph that no problem describes: cuDNN 9.27 divides by its zero rows."""
    cudnn = load_cudnn()
    graph = cudnn.pygraph(device_property=cudnn.create_device_properties(profile), sm_version=90)
    kind = cudnn.data_type.BFLOAT16
    a = graph.tensor(dim=[1, 0, 64], stride=[64, 64, 1], data_type=kind, uid=1)
    b = graph.tensor(dim=[1, 64, 64], stride=[64 * 64, 64, 1], data_type=kind, uid=2)
    graph.matmul(a, b).set_uid(3).set_output(True).set_data_type(kind)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])


def test_planning_that_kills_its_process_kills_no_other(cudnn_child: CudnnHost, h200_profile: str) -> None:
    with pytest.raises(ChildDiedError) as death:
        cudnn_child.run(plan_a_product_of_no_rows, h200_profile)
    assert death.value.signal_name == "SIGFPE"
    assert cudnn_child.run(propose, h200_profile, MATMUL, Search()).candidates


class Mistaken(CudnnEngine):
    def _new_graph(self, problem: Problem, handle: Any, *, dynamic: bool) -> Any:
        raise AttributeError("a mistake of ours")


def propose_mistaken(profile: str) -> None:
    Mistaken(profile).propose(MATMUL, Search())


def test_a_mistake_of_ours_is_no_refusal(cudnn_child: CudnnHost, h200_profile: str) -> None:
    with pytest.raises(JobRaisedError, match="AttributeError: a mistake of ours"):
        cudnn_child.run(propose_mistaken, h200_profile)
