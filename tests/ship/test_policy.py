from dataclasses import replace

import pytest

from tests.report.make import cudnn, failed, refused, torch, trial
from tests.ship.make import HOT, planned
from tunefarm.model.errors import UsageError
from tunefarm.model.job import Protocol
from tunefarm.model.trial import Block, Stage, Standing, Status, Verdict
from tunefarm.ship.policy import Choice, Objective, Policy, Refusal, decide

FAST, DEFAULT, EAGER = cudnn("eng4_k24=3"), cudnn("eng4_k24=2", first=True), torch("eager")


def measured(candidate, us, *, eager_us=None, confirmed=False, workspace=0, deterministic=None, **fields):
    made = planned(trial(candidate, us, **fields))
    measurement = replace(made.outcome.measurement, eager_us=eager_us)
    if confirmed:
        measurement = replace(measurement, blocks=(Block(1000, 10, us),))
    verdict = replace(made.outcome.verdict, deterministic=deterministic)
    outcome = replace(made.outcome, measurement=measurement, verdict=verdict)
    return replace(made, workspace_bytes=workspace, outcome=outcome)


def won(candidate, us, **fields):
    return measured(candidate, us, standing=Standing.WON, **fields)


def decided(trials, *, kept=None, withdrawn=(), **policy):
    digests = {t.plan_digest for t in trials if t.plan_digest}
    return decide(trials, Policy(**policy), kept=digests if kept is None else kept, withdrawn=withdrawn)


def the_choice(trials, **options):
    (decision,) = decided(trials, **options)
    assert isinstance(decision, Choice), decision
    return decision


def the_refusal(trials, **options):
    (decision,) = decided(trials, **options)
    assert isinstance(decision, Refusal), decision
    return decision


def test_the_race_s_winner_ships_with_the_figures_of_what_users_have():
    choice = the_choice(
        [won(FAST, 18.8), measured(DEFAULT, 21.7), measured(EAGER, 30.2), measured(torch("compile"), 27.3)]
    )
    assert choice.trial.outcome.candidate == FAST
    assert choice.default is not None
    assert choice.default.outcome.candidate == DEFAULT
    assert choice.torch is not None
    assert choice.torch.outcome.candidate.name == "compile"


def test_torch_ships_where_it_won():
    choice = the_choice([won(EAGER, 18.8), measured(DEFAULT, 21.7)])
    assert choice.trial.outcome.candidate == EAGER


@pytest.mark.parametrize(("us", "ships"), [(99.5, DEFAULT), (98.9, FAST), (99.2, DEFAULT)])
def test_cudnn_s_default_ships_unless_it_is_beaten_by_the_least_gain(us, ships):
    choice = the_choice([won(FAST, us), measured(DEFAULT, 100.0)])
    assert choice.trial.outcome.candidate == ships
    assert ("less than 1.0%" in choice.why) == (ships is DEFAULT)


def test_the_least_gain_can_be_set():
    trials = [won(FAST, 95.0), measured(DEFAULT, 100.0)]
    assert the_choice(trials, least_gain=0.10).trial.outcome.candidate == DEFAULT
    assert the_choice(trials, least_gain=0).trial.outcome.candidate == FAST
    with pytest.raises(UsageError, match="negative"):
        decided(trials, least_gain=-0.1)


@pytest.mark.parametrize(("us", "ships"), [(99.5, EAGER), (99.2, EAGER), (98.9, FAST)])
def test_torch_is_kept_unless_it_is_beaten_by_the_least_gain(us, ships):
    choice = the_choice([won(FAST, us), measured(DEFAULT, 120.0), measured(EAGER, 100.0)])
    assert choice.trial.outcome.candidate == ships
    assert (f"torch: {FAST.label} gains" in choice.why) == (ships is EAGER)


def test_the_default_that_is_kept_has_to_beat_torch_too():
    trials = [won(FAST, 99.3), measured(DEFAULT, 100.0), measured(EAGER, 100.5)]
    assert the_choice(trials).trial.outcome.candidate == EAGER
    assert the_choice([won(EAGER, 100.0), measured(DEFAULT, 100.1)]).trial.outcome.candidate == EAGER


def test_times_of_two_devices_are_never_compared():
    choice = the_choice([won(FAST, 99.9, worker="GPU-1", minute=5), measured(DEFAULT, 100.0, worker="GPU-2")])
    assert choice.trial.outcome.candidate == FAST
    assert choice.default is None


def test_a_plan_over_the_workspace_limit_gives_way_to_the_next_and_the_reason_is_told():
    trials = [won(FAST, 10.0, workspace=4096), measured(cudnn("eng9"), 12.0), measured(EAGER, 20.0)]
    choice = the_choice(trials, max_workspace=1024)
    assert choice.trial.outcome.candidate.name == "eng9"
    assert "cudnn:eng4_k24=3 can't ship: needs 4096 bytes of workspace, over the limit of 1024" in choice.why
    assert the_choice(trials, max_workspace=4096).trial.outcome.candidate == FAST


def test_only_what_was_seen_to_be_deterministic_ships_where_that_is_asked_for():
    trials = [
        won(FAST, 10.0, deterministic=False),
        measured(cudnn("eng9"), 11.0),
        measured(cudnn("eng7"), 12.0, deterministic=True),
    ]
    choice = the_choice(trials, deterministic_only=True)
    assert choice.trial.outcome.candidate.name == "eng7"
    assert "cudnn:eng4_k24=3 can't ship: not deterministic: equal inputs gave other bits" in choice.why
    assert the_choice(trials).trial.outcome.candidate == FAST
    refusal = the_refusal(trials[:2], deterministic_only=True)
    assert "cudnn:eng9: not known to be deterministic; sweep its problem again" in refusal.why


def test_a_plan_with_a_forbidden_note_gives_way_and_the_note_is_named():
    reduced = replace(FAST, notes=("tensor_core", "reduced_precision_reduction"))
    trials = [won(reduced, 10.0), measured(replace(cudnn("eng9"), notes=("tensor_core",)), 11.0), measured(EAGER, 20.0)]
    choice = the_choice(trials, forbidden_notes=frozenset({"reduced_precision_reduction"}))
    assert choice.trial.outcome.candidate.name == "eng9"
    assert "cuDNN notes reduced_precision_reduction of it, which the policy forbids" in choice.why
    assert the_choice(trials, forbidden_notes=frozenset({"tensor_core"})).trial.outcome.candidate == EAGER
    assert the_choice(trials, forbidden_notes=frozenset({"winograd"})).trial.outcome.candidate == FAST
    with pytest.raises(UsageError, match="no numerical note 'reduced_precision'; there are tensor_core"):
        decided(trials, forbidden_notes=frozenset({"reduced_precision"}))


def test_what_was_confirmed_beside_the_winner_is_believed_before_what_was_screened():
    trials = [
        won(FAST, 10.0, workspace=4096),
        measured(cudnn("eng9"), 11.0),
        measured(cudnn("eng7"), 12.0, confirmed=True),
    ]
    assert the_choice(trials, max_workspace=0).trial.outcome.candidate.name == "eng7"


def test_a_withdrawn_plan_never_ships_again():
    trials = [won(FAST, 10.0), measured(EAGER, 20.0)]
    choice = the_choice(trials, withdrawn={trials[0].plan_digest})
    assert choice.trial.outcome.candidate == EAGER
    assert "was withdrawn" in choice.why
    both = {t.plan_digest for t in trials}
    assert "was withdrawn" in the_refusal(trials, withdrawn=both).why


def test_a_plan_whose_bytes_are_gone_or_unknown_can_not_ship():
    trials = [won(FAST, 10.0)]
    assert "bytes are not in the store" in the_refusal(trials, kept=()).why
    unknown = [replace(trials[0], plan_digest=None)]
    assert "not verified from bytes that are known" in the_refusal(unknown).why


@pytest.mark.parametrize("verdict", [None, Verdict(False, "y: error 0.3")])
def test_what_was_not_verified_is_refused(verdict):
    made = won(FAST, 10.0)
    assert "was not verified" in the_refusal([replace(made, outcome=replace(made.outcome, verdict=verdict))]).why


def test_a_problem_that_nobody_solved_is_refused_with_a_reason():
    refusal = the_refusal(
        [
            failed(FAST, Status.CRASHED, Stage.LOAD, "its process died of SIGSEGV", signal="SIGSEGV"),
            refused("torch", "no kernel"),
        ]
    )
    assert "no candidate has a time" in refusal.why
    assert "crashed: its process died of SIGSEGV" in refusal.why


def test_cold_and_hot_times_are_two_questions():
    cold, hot = won(FAST, 20.0), won(EAGER, 5.0, protocol=HOT)
    assert the_choice([cold, hot]).trial.outcome.candidate == FAST
    assert the_choice([cold, hot], cache=HOT.cache).trial.outcome.candidate == EAGER
    assert "hot cache" in the_refusal([cold], cache=HOT.cache).why


def test_the_eager_objective_goes_by_the_host_s_launches():
    trials = [
        won(FAST, 10.0, eager_us=25.0),
        measured(DEFAULT, 12.0, eager_us=26.0),
        measured(EAGER, 11.0, eager_us=14.0),
    ]
    choice = the_choice(trials, objective=Objective.EAGER)
    assert choice.trial.outcome.candidate == EAGER
    assert "by eager time, of 3" in choice.why
    assert the_choice(trials).trial.outcome.candidate == FAST
    assert "eager launches" in the_refusal([won(FAST, 10.0)], objective=Objective.EAGER).why


def test_of_two_protocols_the_one_that_was_swept_last_counts():
    old = won(FAST, 10.0, minute=0)
    new = won(EAGER, 12.0, minute=9, protocol=Protocol(max_rounds=50))
    assert the_choice([old, new]).trial.outcome.candidate == EAGER


def test_problems_and_targets_are_decided_apart_in_the_order_in_which_they_come():
    trials = [
        won(FAST, 10.0, n=8),
        won(FAST, 11.0, n=16),
        won(EAGER, 9.0, n=8, target="f" * 20),
        failed(FAST, Status.FAILED, Stage.BUILD, "no", n=24),
    ]
    kinds = [(type(decision).__name__, getattr(decision, "target", "")) for decision in decided(trials)]
    assert [kind for kind, _ in kinds] == ["Choice", "Choice", "Choice", "Refusal"]


def test_what_has_no_trial_has_no_decision():
    assert decided([]) == ()
