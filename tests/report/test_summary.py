import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.make import TARGET, cudnn, failed, refused, small_sweep, torch, trial
from tunefarm.model.job import Cache, Protocol, Task
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.report.payload import VERSION, candidates_payload, kernel_cache_payload, summary_payload, totals_payload
from tunefarm.report.summary import error_of, summarize, summarize_job, titles
from tunefarm.report.totals import add_up, kernel_cache_uses


def one(trials):
    (summary,) = summarize(trials)
    return summary


def test_a_summary_knows_the_winner_and_what_it_is_compared_with():
    summary = summarize(small_sweep())[0]
    assert summary.winner.outcome.candidate.name == "eng4_k24=3"
    assert summary.default.outcome.candidate.name == "eng4_k24=2"
    assert summary.torch.outcome.candidate.name == "compile"
    assert summary.eager.outcome.candidate.name == "eager"
    assert summary.gain_over(summary.default) == pytest.approx(21.7 / 18.8)
    assert summary.gain_over(summary.torch) == pytest.approx(27.3 / 18.8)
    assert summary.spread == pytest.approx(263.1 / 18.8)
    assert summary.counts == {Status.MEASURED: 5, Status.CRASHED: 1}


def test_candidates_come_winner_first_then_by_standing_and_time_then_those_that_fell_out():
    summary = summarize(reversed(small_sweep()))[-1]
    assert [t.outcome.candidate.name for t in summary.trials] == [
        "eng4_k24=3",
        "eng4_k24=2",
        "compile",
        "eager",
        "eng32_k2=2_k6=0_k13=2_k14=0_k22=2",
        "eng9",
    ]


def test_times_of_two_workers_are_never_compared():
    summary = one(
        [
            trial(cudnn("a"), 10.0, standing=Standing.WON),
            trial(cudnn("b", first=True), 20.0, worker="GPU-2"),
            trial(torch("eager"), 30.0, worker="GPU-2"),
        ]
    )
    assert summary.gain_over(summary.default) is None
    assert summary.gain_over(summary.torch) is None
    assert summary.spread is None
    assert candidates_payload(summary)[1]["ratio_to_winner"] is None


def test_a_default_that_failed_is_still_named():
    summary = one(
        [
            trial(cudnn("b"), 10.0, standing=Standing.WON),
            failed(cudnn("a", first=True), Status.WRONG, Stage.VERIFY, "NaN"),
        ]
    )
    assert summary.default.outcome.status is Status.WRONG
    assert summary.gain_over(summary.default) is None


def test_an_engine_that_refused_the_problem_is_no_candidate():
    summary = one([trial(torch("eager"), 10.0, standing=Standing.WON), refused("cudnn", "rank 7")])
    assert len(summary.trials) == 1
    assert [t.outcome.reason for t in summary.refusals] == ["rank 7"]


def test_targets_and_protocols_are_apart():
    hot = Protocol(cache=Cache.HOT)
    rows = [
        trial(cudnn("a"), 10.0, standing=Standing.WON),
        trial(cudnn("a"), 8.0, standing=Standing.WON, protocol=hot),
        trial(cudnn("a"), 7.0, standing=Standing.WON, target="another"),
    ]
    assert [s.winner.outcome.measurement.time_us for s in summarize(rows)] == [10.0, 8.0, 7.0]


def test_of_two_that_won_the_later_one_counts():
    summary = one(
        [
            trial(cudnn("new"), 11.0, standing=Standing.WON, minute=5),
            trial(cudnn("old"), 10.0, standing=Standing.WON, minute=1),
        ]
    )
    assert summary.winner.outcome.candidate.name == "new"


def test_an_error_that_is_not_a_number_does_not_pass_for_a_small_one():
    assert math.isnan(error_of(trial(cudnn("a"), 1.0, l2=math.nan)))


def test_a_jobs_summaries_keep_its_order_and_names_and_miss_nothing():
    measured = trial(cudnn("a"), 10.0, standing=Standing.WON, n=8, name="old name")
    missing = trial(cudnn("a"), 10.0, n=16).problem
    tasks = [Task("second", missing), Task("first", measured.problem)]
    summaries = summarize_job(tasks, [TARGET.key], [measured, trial(cudnn("b"), 1.0, n=999)])
    assert [(s.name, s.winner is not None) for s in summaries] == [("second", False), ("first", True)]


def test_problems_that_share_a_name_are_told_apart():
    rows = [trial(cudnn("a"), 1.0, n=n, name="mlp") for n in (1, 2)] + [trial(cudnn("a"), 1.0, n=3, name="head")]
    first, second, third = titles(summarize(rows))
    assert first != second
    assert first.startswith("mlp: ")
    assert third == "head"


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_the_mean_gain_lies_between_the_least_and_the_greatest(gains):
    rows = []
    for n, gain in enumerate(gains, start=1):
        rows.append(trial(cudnn("w"), 10.0, n=n, standing=Standing.WON))
        rows.append(trial(cudnn("d", first=True), 10.0 * gain, n=n))
    gain = add_up(summarize(rows)).over_default
    assert gain.problems == len(gains)
    assert min(gains) * (1 - 1e-9) <= gain.mean <= max(gains) * (1 + 1e-9)


def test_totals_count_problems_without_a_winner_and_leave_their_gains_out():
    totals = add_up(summarize(small_sweep()))
    assert (totals.problems, totals.without_winner) == (3, 1)
    assert totals.over_default.problems == 2
    assert totals.over_default.mean == pytest.approx(math.sqrt(21.7 / 18.8 * 39.3 / 34.5))
    assert totals.counts[Status.MEASURED] == 7


def test_what_the_kernel_cache_saved_is_told_for_each_structure_and_plan():
    rows = [
        trial(cudnn("eng7", dynamic=True), 10.0, n=n, build_ms=ms, minute=n) for n, ms in ((1, 466), (2, 6), (3, 8))
    ]
    rows += [trial(cudnn("eng7"), 10.0, n=n, build_ms=450) for n in (1, 2)]
    (use,) = kernel_cache_uses(summarize(rows))
    assert (use.problems, use.first_ms, use.later_ms, use.static_ms) == (3, 466, 7, 450)


def test_without_dynamic_candidates_nothing_is_said_of_the_kernel_cache():
    assert kernel_cache_uses(summarize(small_sweep())) == ()


def test_payloads_are_strict_json():
    rows = [*small_sweep(), trial(cudnn("nan"), math.nan, n=77, l2=math.nan)]
    rows.append(trial(cudnn("eng7", dynamic=True), 10.0, n=8))
    summaries = summarize(rows)
    payload = {
        "version": VERSION,
        "problems": [{**summary_payload(s), "candidates": candidates_payload(s)} for s in summaries],
        "totals": totals_payload(add_up(summaries)),
        "kernel_cache": [kernel_cache_payload(use) for use in kernel_cache_uses(summaries)],
    }
    text = json.dumps(payload, allow_nan=False)
    assert json.loads(text)["problems"][0]["winner"]["time_us"] == 18.8
