"""Trials, plans and proposals come back as they went in."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.store.make import NOON, TARGET, open_store, stored_plan, trial
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import StoreError
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.model.trial import Outcome, OutputError, Stage, Status, Trial, Verdict
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import SdpaProblem
from tunefarm.store import Store, StoredPlan, StoredProposal
from tunefarm.store.rows import trial_of, trial_row
from tunefarm.store.schema import TRIALS


@given(strategies.trials)
def test_a_trial_is_the_same_after_a_row(trial: Trial) -> None:
    row = {**dict.fromkeys(TRIALS.names), **trial_row(trial)}
    assert trial_of(row, trial.problem) == trial


@settings(max_examples=15, deadline=None)
@given(st.lists(strategies.trials, min_size=1, max_size=6, unique_by=lambda t: t.key))
def test_trials_are_the_same_after_the_disk(trials: list[Trial]) -> None:
    with TemporaryDirectory() as folder:
        open_store(Path(folder), create=True).append_trials(trials)
        found = open_store(Path(folder)).trials()
        assert sorted(found, key=lambda t: t.key) == sorted(trials, key=lambda t: t.key)
        # Fields that are no part of equality come back too.
        fields = {t.key: (t.outcome.candidate.to_dict(), t.outcome.measurement) for t in trials}
        assert {t.key: (t.outcome.candidate.to_dict(), t.outcome.measurement) for t in found} == fields


@settings(max_examples=10, deadline=None)
@given(st.lists(strategies.plans, max_size=40))
def test_a_plan_is_found_by_its_digest(plans: list[Plan]) -> None:
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder), create=True)
        store.append_plans([StoredPlan(plan, "problem", "target") for plan in plans])
        assert [store.plan(plan.digest) for plan in plans] == [plan.blob for plan in plans]


@pytest.mark.parametrize("name", ["},{", '},{"a":1', '"},{"name":"', "[{}]"])
def test_a_proposal_whose_names_look_like_json_comes_back(store: Store, name: str) -> None:
    proposal = Proposal("cudnn", tuple(Candidate("cudnn", name, number) for number in range(3)))
    store.append_proposals([StoredProposal("problem", "target", "search", proposal)])
    assert store.proposals("target")["problem", "search", "cudnn"] == proposal


@settings(max_examples=10, deadline=None)
@given(st.lists(strategies.proposals, max_size=3, unique_by=lambda p: p.engine))
def test_proposals_come_back_by_what_was_asked(proposals: list[Proposal]) -> None:
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder), create=True)
        store.append_proposals([StoredProposal("problem", "target", "search", p) for p in proposals])
        assert store.proposals("target") == {("problem", "search", p.engine): p for p in proposals}
        assert store.proposals("another") == {}


@settings(max_examples=15, deadline=None)
@given(strategies.targets)
def test_a_target_comes_back_by_its_key(target: Target) -> None:
    with TemporaryDirectory() as folder:
        open_store(Path(folder), create=True).put_target(target)
        assert open_store(Path(folder)).targets() == {target.key: target}


def test_every_column_is_written() -> None:
    assert set(trial_row(trial())) | {"part", "part_row"} == set(TRIALS.names)


def test_nan_is_stored_as_null_and_read_as_nan(store: Store) -> None:
    error = OutputError("y", math.nan, 0.5, math.inf, -0.25)
    outcome = Outcome(
        trial().outcome.candidate, Status.WRONG, Stage.VERIFY, "nan", verdict=Verdict(False, "l2", (error,))
    )
    store.append_trials([trial(outcome=outcome)])
    row = store.sql("SELECT worst_l2, worst_block, worst_element, worst_gain, errors FROM trials").to_pylist()[0]
    assert row == {
        "worst_l2": None,
        "worst_block": 0.5,
        "worst_element": math.inf,
        "worst_gain": 0.25,
        "errors": [{"name": "y", "l2": None, "block": 0.5, "element": math.inf, "gain": -0.25}],
    }
    verdict = store.trials()[0].outcome.verdict
    assert verdict is not None
    assert math.isnan(verdict.outputs[0].l2)


def test_rates_are_derived_from_the_time(store: Store) -> None:
    store.append_trials([trial(n=1000, us=2.0)])  # 1000 operations and 2 x 2000 bytes in 2 us
    assert store.sql("SELECT tflops, gb_per_s FROM trials").to_pylist() == [{"tflops": 0.0005, "gb_per_s": 2.0}]


def test_text_that_is_no_unicode_is_stored_with_a_mark_in_its_place(store: Store) -> None:
    outcome = replace(trial().outcome, reason="stderr: \udcff")
    store.append_trials([trial(outcome=outcome)])
    assert store.trials()[0].outcome.reason == "stderr: ?"


def test_the_latest_proposal_counts(store: Store) -> None:
    asked = ("problem", TARGET.key, "search")
    late = StoredProposal(*asked, Proposal("cudnn", refusal="late"), NOON.replace(hour=13))
    early = StoredProposal(*asked, Proposal("cudnn", refusal="early"), NOON)
    store.append_proposals([late])
    store.append_proposals([early])
    assert store.proposals(TARGET.key)["problem", "search", "cudnn"].refusal == "late"


def test_a_proposal_in_another_versions_words_is_asked_for_again(store: Store) -> None:
    row = {"target": TARGET.key, "problem": "p", "search": "s", "engine": "cudnn", "proposed_at": NOON}
    store._proposals.table.append([{**row, "candidates_json": '[{"engine":"cudnn","colour":"red"}]'}])
    assert store.proposals(TARGET.key) == {}


def test_bytes_under_another_plans_digest_are_never_handed_out(store: Store) -> None:
    false = stored_plan(b"plan")
    false.plan.__dict__["digest"] = "0" * 64
    store.append_plans([false])
    with pytest.raises(StoreError, match="are not that plan's"):
        store.plan("0" * 64)
    with pytest.raises(StoreError, match="has no plan"):
        store.plan("1" * 64)


def test_plans_lie_sorted_in_small_groups_with_a_page_index(store: Store, tmp_path: Path) -> None:
    store.append_plans([stored_plan(f"plan {i}".encode()) for i in range(50)])
    part = pq.ParquetFile(next((tmp_path / "store" / "plans" / "v1").iterdir()))
    digests = part.read(["digest"]).column(0).to_pylist()
    assert digests == sorted(digests)
    groups = [part.metadata.row_group(i) for i in range(part.num_row_groups)]
    assert [group.num_rows for group in groups] == [16, 16, 16, 2]
    assert all(group.column(0).has_offset_index for group in groups)


def test_a_plan_stored_twice_is_one_plan(store: Store) -> None:
    store.append_plans([stored_plan(b"plan"), stored_plan(b"plan", "eng1")])
    store.append_plans([stored_plan(b"plan")])
    assert store.plan(stored_plan(b"plan").plan.digest) == b"plan"


@pytest.mark.parametrize(
    "problem",
    [
        MatmulProblem(m=16, n=32, k=64, alpha=0.5, bias=True),
        SdpaProblem(batch=2, heads_q=4, heads_kv=2, seq_q=128, seq_kv=256, head_dim=64),
        ConvProblem(batch=2, in_channels=8, height=16, out_channels=8, kernel=3),
    ],
    ids=lambda problem: problem.op,
)
def test_real_problems_are_rebuilt_by_their_operation(tmp_path: Path, problem: Problem) -> None:
    of_it = replace(trial(), problem=problem, name=problem.label)
    Store.open(tmp_path / "s", create=True).append_trials([of_it])
    assert Store.open(tmp_path / "s").trials() == [of_it]
