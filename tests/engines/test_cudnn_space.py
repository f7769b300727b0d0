"""The wider space over the real library, without a GPU."""

import pytest

from tests.cudnn_host import CudnnHost
from tests.engines.problems import CONV, MATMUL, SDPA
from tests.engines.test_cudnn_engine import build, engine_in_child, propose
from tunefarm.engines.cudnn_blob import read_blob
from tunefarm.farm.builder import Builder
from tunefarm.model.candidate import Candidate, Note, Plan
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search, Space
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Stage, Status
from tunefarm.ops.activation import Activation
from tunefarm.ops.matmul import MatmulProblem

pytestmark = pytest.mark.cudnn

KNOBS = Search(space=Space.KNOBS)
LINEAR = MatmulProblem(m=256, n=4096, k=4096, transpose_b=True, bias=True, activation=Activation.GELU)


def widen(profile: str, problem: Problem, search: Search) -> tuple[Candidate, ...] | str:
    try:
        return engine_in_child(profile).widen(problem, search)
    except Declined as refusal:
        return str(refusal)


def test_a_linear_layer_has_over_a_hundred_candidates_none_of_them_twice(
    cudnn_child: CudnnHost, h200_profile: str
) -> None:
    listed = cudnn_child.run(propose, h200_profile, LINEAR, KNOBS).candidates
    more = cudnn_child.run(widen, h200_profile, LINEAR, KNOBS)
    keys = [c.key for c in (*listed, *more)]
    assert len(keys) == len(set(keys)) > 100
    assert all(c.replayable and c.proposed_by == "knobs" and not c.is_default for c in more)
    assert {c.engine_id for c in more} == {4, 7}, "engine 2 is a fallback alone, and takes 20 s a build"
    assert any(dict(c.knobs).get("SPLIT_K_SLC") for c in more)


def test_the_heuristic_space_has_no_more(cudnn_child: CudnnHost, h200_profile: str) -> None:
    assert cudnn_child.run(widen, h200_profile, LINEAR, Search()) == ()


def test_what_is_built_is_what_was_asked_for_also_by_an_engine_that_never_widened(
    cudnn_child: CudnnHost, h200_profile: str
) -> None:
    more = cudnn_child.run(widen, h200_profile, MATMUL, KNOBS)
    engine_apart = h200_profile + "\n"  # another engine object: it has made none of these plans yet
    for candidate in more[:: max(1, len(more) // 6)]:
        for profile in (h200_profile, engine_apart):
            plan = cudnn_child.run(build, profile, MATMUL, candidate)
            if isinstance(plan, str):
                continue  # cuDNN finalises more than it can build
            assert isinstance(plan, Plan)
            facts = read_blob(plan.blob)
            assert facts.engine_id == candidate.engine_id
            assert dict(candidate.knobs).items() <= dict(facts.knobs).items()


def test_attention_has_more_kernels_than_its_lists(cudnn_child: CudnnHost, h200_profile: str) -> None:
    listed = cudnn_child.run(propose, h200_profile, SDPA, KNOBS).candidates
    more = cudnn_child.run(widen, h200_profile, SDPA, Search(space=Space.EXHAUSTIVE))
    assert more
    assert not {c.key for c in more} & {c.key for c in listed}


def test_an_exhaustive_search_asks_every_engine(cudnn_child: CudnnHost, h200_profile: str) -> None:
    knobs = cudnn_child.run(widen, h200_profile, LINEAR, KNOBS)
    everything = cudnn_child.run(widen, h200_profile, LINEAR, Search(space=Space.EXHAUSTIVE))
    keys = {c.key for c in everything}
    assert len(keys) == len(everything) > 3 * len(knobs)
    assert len({c.engine_id for c in everything}) > len({c.engine_id for c in knobs})
    splits = {parts for c in everything if (parts := dict(c.knobs).get("SPLIT_K_SLC")) is not None}
    assert splits <= {1, 2, 4, 8, 16, 32, 64, 128}


@pytest.mark.parametrize("problem", [LINEAR, SDPA])
def test_kernels_on_tensor_cores_are_noted_as_such(cudnn_child: CudnnHost, h200_profile: str, problem: Problem) -> None:
    for candidate in cudnn_child.run(propose, h200_profile, problem, KNOBS).candidates:
        assert Note.TENSOR_CORE in candidate.notes
        assert Note.NONDETERMINISTIC not in candidate.notes


def test_a_list_whose_knobs_do_not_tell_all_is_noted_as_a_whole(cudnn_child: CudnnHost, h200_profile: str) -> None:
    candidates = cudnn_child.run(propose, h200_profile, CONV, KNOBS).candidates
    unnamed = [c for c in candidates if not c.replayable]
    for mode in {c.proposed_by for c in unnamed}:
        assert len({c.notes for c in unnamed if c.proposed_by == mode}) == 1


def test_precompiled_engines_that_tell_no_ranges_are_passed_over(cudnn_child: CudnnHost, h200_profile: str) -> None:
    more = cudnn_child.run(widen, h200_profile, CONV, KNOBS)
    assert not isinstance(more, str)


def test_a_refusal_to_widen_costs_a_row_and_not_the_proposal() -> None:
    builder = Builder({"CUDA_VISIBLE_DEVICES": ""}, deadline_s=5.0)
    engine = "tests.engines.narrow:NarrowEngine"
    try:
        report = builder.propose(MATMUL, KNOBS, [engine, "tests.engines.narrow:DyingEngine"])
    finally:
        builder.close()
        builder.wait_closed()
    assert [[c.name for c in p.candidates] for p in report.proposals] == [["listed"], ["listed"]]
    assert [(f.candidate.name, f.status, f.stage) for f in report.failures] == [
        ("(knobs)", Status.DECLINED, Stage.PROPOSE),
        ("(knobs)", Status.CRASHED, Stage.PROPOSE),
    ]
