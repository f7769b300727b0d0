import random
import time
from dataclasses import replace

import pytest

from tests.measure import deeds
from tests.measure.planted import Planted, ToldTimer, default, hold
from tests.measure.problems import PROBLEMS
from tunefarm.measure.bench import Bench
from tunefarm.measure.ceilings import Ceilings
from tunefarm.measure.session import DevicePoisonedError, Entered, Event, Settled
from tunefarm.measure.timing import CpuTimer
from tunefarm.model.errors import Declined
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Outcome, Stage, Standing, Status
from tunefarm.ops.matmul import MatmulProblem

PROBLEM = MatmulProblem(m=40, n=48, k=32)


def won(outcomes: dict[str, Outcome]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome.standing is Standing.WON]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.label)
def test_no_wrong_candidate_passes_in_any_family_and_dtype(problem: Problem) -> None:
    wrong = [Planted(name, 5.0, deed, workspace_bytes=4000) for name, deed in deeds.WRONG.items()]
    victim, steal = deeds.thief()
    wrong += [
        Planted("thief", 5.0, steal),
        Planted("lazy", 5.0, deeds.lazy()),
        Planted("left", 5.0, deeds.left_unwritten, "torch"),
    ]
    right = [default(), Planted("victim", 99.0, victim, "torch"), Planted("best", 90.0)]
    outcomes = hold(problem, [*right, *wrong, Planted("own", 98.0, deeds.own_outputs, "torch")])
    assert {n: o.status for n, o in outcomes.items() if o.status is not Status.WRONG} == dict.fromkeys(
        ["default", "victim", "best", "own"], Status.MEASURED
    )
    assert won(outcomes) == ["best"]
    for planted in wrong:
        outcome = outcomes[planted.name]
        late = planted.name in {"right_ten_times", "idle_after_ten"}
        assert outcome.stage is (Stage.TIME if late else Stage.VERIFY)
        assert outcome.measurement is None
        assert outcome.verdict is not None
        assert not outcome.verdict.right
        assert outcome.reason


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("deed", ["zeros", "right_ten_times"])
def test_a_wrong_candidate_wins_nowhere_and_costs_nobody_else_anything(place: int, deed: str) -> None:
    planted = [default(100.0), Planted("best", 80.0)]
    planted.insert(place, Planted("wrong", 1.0, deeds.WRONG[deed]))
    outcomes = hold(PROBLEM, planted)
    assert outcomes["wrong"].status is Status.WRONG
    assert won(outcomes) == ["best"]
    assert outcomes["default"].standing is Standing.SLOWER


def test_what_goes_wrong_late_is_wrong_and_those_it_beat_are_raced_again() -> None:
    outcomes = hold(
        PROBLEM,
        [Planted("late", 50.0, deeds.WRONG["right_ten_times"]), Planted("a", 90.0), Planted("b", 95.0), default(800.0)],
    )
    assert outcomes["late"].status is Status.WRONG
    assert "right at first, not after it was timed" in outcomes["late"].reason
    assert won(outcomes) == ["a"]
    assert outcomes["b"].standing is Standing.SLOWER


def test_even_if_all_others_were_screened_out_against_it() -> None:
    late = Planted("late", 1.0, deeds.WRONG["right_ten_times"])
    outcomes = hold(PROBLEM, [late, Planted("a", 900.0), Planted("b", 1000.0)])
    assert won(outcomes) == ["a"]


def test_a_winner_that_only_knows_the_first_inputs_is_wrong() -> None:
    outcomes = hold(PROBLEM, [Planted("memory", 50.0, deeds.memorised()), Planted("honest", 90.0)])
    assert outcomes["memory"].status is Status.WRONG
    assert outcomes["memory"].reason.startswith("on inputs of another seed: output c: ")
    assert won(outcomes) == ["honest"]


def test_reasons_name_the_offence() -> None:
    names = (
        "writes_to_inputs",
        "writes_past_an_output",
        "writes_before_its_workspace",
        "believes_its_workspace_is_garbage",
    )
    outcomes = hold(PROBLEM, [Planted(n, deed=deeds.WRONG[n], workspace_bytes=64) for n in names])
    assert outcomes["writes_to_inputs"].reason == "it writes to its input a"
    assert outcomes["writes_past_an_output"].reason.startswith("it writes outside of output c: at least 2 bytes")
    assert (
        outcomes["writes_before_its_workspace"].reason
        == "it writes outside of its workspace: at least 1 bytes beside it"
    )
    assert outcomes["believes_its_workspace_is_garbage"].reason.startswith(
        "its second launch, with a workspace of zeros: "
    )


@pytest.mark.parametrize("launch", [1, 2, 3, 6, 12, 30, 50, 70])
def test_a_candidate_that_raises_is_an_outcome_whenever_it_does(launch: int) -> None:
    events: list[Event] = []
    planted = [default(), Planted("bad", 90.0, deeds.raises_at(launch)), Planted("good", 95.0)]
    outcomes = hold(PROBLEM, planted, events=events)
    bad = outcomes["bad"]
    assert bad.status is Status.FAILED
    assert bad.reason == f"RuntimeError: planted at launch {launch}, in two lines"
    assert bad.stage is (Stage.VERIFY if launch <= 2 else Stage.TIME)
    assert won(outcomes) == ["good"]
    assert Settled(bad) in events


def test_refusals_and_failures_to_load_are_outcomes() -> None:
    def load(bench: Bench) -> Bench:
        def refuse(problem: Problem, plan: object) -> object:
            name = plan.candidate.name
            if name == "declines":
                raise Declined("another driver")
            if name == "raises":
                raise MemoryError
            return bench.load(problem, plan)

        return replace(bench, load=refuse)

    outcomes = hold(PROBLEM, [Planted("declines"), Planted("raises"), Planted("fine")], bench=load)
    assert (outcomes["declines"].status, outcomes["declines"].reason) == (Status.DECLINED, "another driver")
    assert (outcomes["raises"].status, outcomes["raises"].reason) == (Status.FAILED, "MemoryError")
    assert {outcomes[n].stage for n in ("declines", "raises")} == {Stage.LOAD}
    assert won(outcomes) == ["fine"]


def test_a_plan_over_the_job_s_workspace_is_declined_even_the_default() -> None:
    planted = [default(workspace_bytes=2**20), Planted("small", workspace_bytes=2**10)]
    outcomes = hold(PROBLEM, planted, protocol=Protocol(max_workspace=2**10))
    assert outcomes["default"].status is Status.DECLINED
    assert outcomes["default"].stage is Stage.LOAD
    assert outcomes["default"].reason == "needs 1.0 MiB of workspace; the job allows 1.0 KiB"
    assert won(outcomes) == ["small"]


def test_no_right_candidate_is_no_winner() -> None:
    outcomes = hold(PROBLEM, [Planted("a", deed=deeds.zeros), Planted("b", deed=deeds.raises_at(1))])
    assert won(outcomes) == []
    assert hold(PROBLEM, []) == {}


def test_a_lone_candidate_wins_with_fresh_times() -> None:
    only = hold(PROBLEM, [Planted("only", 42.0)])["only"]
    assert only.standing is Standing.WON
    assert only.why == "the only candidate in the race"
    assert only.measurement is not None
    assert only.measurement.time_us == 42.0
    assert [b.round for b in only.measurement.blocks] == [-1, *range(1000, 1010)]


def test_standings_and_their_reasons() -> None:
    planted = [
        default(100.0),
        Planted("best", 80.0),
        Planted("big", 80.1, workspace_bytes=1_258_291),
        Planted("slower", 90.0),
        Planted("twice", 161.0),
        Planted("thrice", 300.0),
        Planted("endless", 6000.0),
        Planted("eager", 2000.0, engine="torch"),
        Planted("compile", 1000.0, engine="torch"),
    ]
    outcomes = hold(MatmulProblem(m=8, n=8, k=8), planted)
    assert {name: (o.standing, o.why) for name, o in outcomes.items()} == {
        "best": (Standing.WON, "25.0 % faster than cudnn:default, cuDNN's default"),
        "default": (Standing.SLOWER, "25.0 % slower than cudnn:best"),
        "big": (Standing.TIED, "tied (+0.1 ± 0.0 %); cudnn:best comes first by less workspace (0 against 1.2 MiB)"),
        "slower": (Standing.SLOWER, "12.5 % slower than cudnn:best"),
        "twice": (Standing.SCREENED, "screened: 2.0x the best"),
        "thrice": (Standing.SCREENED, "screened: 3.8x the best at a single launch"),
        "endless": (Standing.SCREENED, "screened: 75.0x the best at its first launches"),
        "eager": (Standing.SCREENED, "screened: 25.0x the best"),
        "compile": (Standing.SLOWER, "1150.0 % slower than cudnn:best"),
    }


def test_rounds_are_numbered_and_every_measured_candidate_has_its_blocks() -> None:
    outcomes = hold(PROBLEM, [default(100.0), Planted("best", 80.0), Planted("far", 9000.0)], timer=ToldTimer(0.003))
    for name in ("default", "best"):
        measurement = outcomes[name].measurement
        assert measurement is not None
        rounds = [b.round for b in measurement.blocks]
        assert rounds == [-1, *range(len(rounds) - 11), *range(1000, 1010)]
        fresh = sorted(b.us for b in measurement.blocks if b.round >= 1000)
        assert (measurement.low_us, measurement.high_us) == (fresh[1], fresh[8])
        assert measurement.low_us < measurement.time_us < measurement.high_us
        assert len({b.launches for b in measurement.blocks if b.round >= 0}) == 1
        assert measurement.eager_us is not None
    far = outcomes["far"].measurement
    assert far is not None
    assert [(b.round, b.launches) for b in far.blocks] == [(-1, 1)]
    assert far.eager_us is None


def test_all_candidates_of_a_race_have_blocks_of_one_length_and_method() -> None:
    planted = [default(70.0), Planted("best", 30.0), Planted("near", 40.0), Planted("eager", 200.0, engine="torch")]
    outcomes = hold(PROBLEM, planted, timer=ToldTimer(captures=True))
    measured = [o.measurement for o in outcomes.values() if o.measurement]
    assert {m.method for m in measured} == {"graph"}
    assert {b.launches for m in measured for b in m.blocks if b.round >= 0} == {10}
    assert outcomes["best"].measurement.replay_us == 30.0
    assert outcomes["near"].measurement.replay_us is None


def test_what_a_graph_can_t_hold_is_timed_by_events_and_not_raced() -> None:
    planted = [default(45.0), Planted("syncs", 40.0, captures=False), Planted("best", 42.0)]
    outcomes = hold(PROBLEM, planted, timer=ToldTimer(captures=True))
    syncs = outcomes["syncs"]
    assert syncs.status is Status.MEASURED
    assert syncs.measurement.method == "events"
    assert syncs.standing is Standing.SCREENED
    assert syncs.why.endswith(
        "can't be captured into a CUDA graph, as the others were timed: planted: it waits for the device"
    )
    assert won(outcomes) == ["best"]
    alone = hold(
        PROBLEM,
        [Planted("a", 30.0, captures=False), Planted("b", 40.0, captures=False)],
        timer=ToldTimer(captures=True),
    )
    assert won(alone) == ["a"]
    assert alone["a"].measurement.method == "events"


def test_the_stored_winner_and_the_default_win_ties() -> None:
    planted = [default(100.2), Planted("a", 100.0), Planted("b", 100.4)]
    assert won(hold(PROBLEM, planted)) == ["default"]
    assert won(hold(PROBLEM, planted, incumbent=planted[2].key)) == ["b"]
    assert won(hold(PROBLEM, [Planted("a", 98.0), *planted[:1], planted[2]], incumbent=planted[2].key)) == ["a"]


def test_a_gain_that_the_fresh_rounds_don_t_confirm_leaves_the_default() -> None:
    class Deceived(ToldTimer):
        """The challenger looks 5 % faster for as long as a race can last, and is not."""

        def block(self, launches, method, *, sweep):
            sample = super().block(launches, method, sweep=sweep)
            executable = launches[0].executable
            return lambda: sample() * (0.95 if executable.us == 99.9 and executable.launches < 60 else 1.0)

    outcomes = hold(PROBLEM, [default(100.0), Planted("luck", 99.9)], timer=Deceived())
    assert won(outcomes) == ["default"]
    assert outcomes["luck"].why == "no significant gain over cudnn:default, cuDNN's default"


def test_a_stall_in_the_screen_costs_nobody_the_race_where_it_takes_the_least_of_three() -> None:
    class Stalling(ToldTimer):
        screen_samples = 3
        stalls = 0

        def block(self, launches, method, *, sweep):
            sample = super().block(launches, method, sweep=sweep)

            def stalled() -> float:
                self.stalls += 1
                return sample() * (50 if self.stalls % 3 == 0 else 1)

            return stalled

    outcomes = hold(PROBLEM, [Planted("a", 100.0), Planted("best", 90.0)], timer=Stalling())
    assert {outcomes["a"].standing, outcomes["best"].standing}.isdisjoint({Standing.SCREENED})


@pytest.mark.parametrize("stalled", [[0], [1], [2], [0, 2], [1, 3]])
def test_a_stalled_launch_or_block_does_not_screen_out_the_true_winner(stalled: list[int]) -> None:
    class Preempted(ToldTimer):
        """Some samples of the fastest candidate are 200 times too slow."""

        samples = 0

        def block(self, launches, method, *, sweep):
            sample = super().block(launches, method, sweep=sweep)

            def preempted() -> float:
                us = sample()
                if launches[0].executable.us != 80.0:
                    return us
                self.samples += 1
                return us * (200 if self.samples - 1 in stalled else 1)

            return preempted

    outcomes = hold(PROBLEM, [default(100.0), Planted("a", 120.0), Planted("best", 80.0)], timer=Preempted())
    assert won(outcomes) == ["best"]
    assert outcomes["best"].measurement is not None
    assert outcomes["best"].measurement.time_us == 80.0


def test_a_candidate_whose_first_timed_launch_sleeps_wins_by_the_wall_clock() -> None:
    def sleeping(ms: float, first_ms: float) -> deeds.Deed:
        def deed(executable, inputs, outputs, workspace):
            deeds.right(executable, inputs, outputs, workspace)
            time.sleep((first_ms if executable.launches <= 3 else ms) / 1e3)

        return deed

    timer = CpuTimer(Cache.COLD)
    timer.screen_samples = 1
    planted = [Planted("slow", deed=sleeping(10, 10)), Planted("best", deed=sleeping(2, 400))]
    outcomes = hold(MatmulProblem(m=8, n=8, k=8), planted, timer=timer)
    assert won(outcomes) == ["best"]


def test_what_is_truly_slow_is_timed_twice_before_it_is_screened_out() -> None:
    outcomes = hold(PROBLEM, [default(100.0), Planted("far", 9000.0), Planted("thrice", 310.0)])
    for name, figure, launches in (
        ("far", "90.0x the best at its first", 1),
        ("thrice", "3.1x the best at a single", 2),
    ):
        assert outcomes[name].why.startswith(f"screened: {figure} launch")
        measurement = outcomes[name].measurement
        assert measurement is not None
        assert len(measurement.blocks) == launches


def test_order_and_names_do_not_change_who_wins() -> None:
    us = {"a": 100.0, "b": 90.0, "c": 85.0, "d": 170.0, "e": 400.0}
    rng = random.Random(0)
    for _ in range(6):
        names = rng.sample(list(us), len(us))
        planted = [Planted(name, us[name]) for name in names]
        assert won(hold(MatmulProblem(m=8, n=8, k=8), planted, seed=rng.randrange(99))) == ["c"]


def test_an_impossible_time_is_a_wrong_result() -> None:
    ceilings = Ceilings(bytes_per_us=1e9, flops_per_us=PROBLEM.flops / 60, l2_bytes=0)

    def bench(bench: Bench) -> Bench:
        return replace(bench, ceilings=ceilings)

    outcomes = hold(PROBLEM, [Planted("dream", 45.0), Planted("best", 70.0), default()], bench=bench)
    assert outcomes["dream"].status is Status.WRONG
    assert outcomes["dream"].stage is Stage.TIME
    assert outcomes["dream"].reason.startswith("45.0 us is impossible: ")
    assert won(outcomes) == ["best"]


def test_a_lost_device_ends_the_session_and_names_the_candidate() -> None:
    class Lost(Bench):
        def is_lost(self) -> bool:
            return True

    def bench(bench: Bench) -> Bench:
        return Lost(bench.device, bench.timer, bench.load)

    planted = [default(), Planted("bad", 90.0, deeds.raises_at(8))]
    events: list[Event] = []
    with pytest.raises(DevicePoisonedError, match="planted at launch 8") as lost:
        hold(PROBLEM, planted, bench=bench, events=events)
    assert lost.value.candidate == planted[1].key
    assert lost.value.stage is Stage.TIME
    assert events[-1] == Entered(Stage.TIME, planted[1].key, events[-1].deadline_s)


def test_every_step_is_announced_with_a_deadline_before_it_begins() -> None:
    events: list[Event] = []
    planted = [default(), Planted("a", 90.0), Planted("compile", 120.0, engine="torch")]
    hold(PROBLEM, planted, events=events)
    entered = [e for e in events if isinstance(e, Entered)]
    assert entered[0].stage is Stage.REFERENCE
    assert entered[0].candidate is None
    assert all(e.deadline_s >= 10 for e in entered)
    loads = {e.candidate: e.deadline_s for e in entered if e.stage is Stage.LOAD}
    assert loads == {planted[0].key: 30, planted[1].key: 30, planted[2].key: 180}
    for candidate in planted:
        stages = [e.stage for e in entered if e.candidate == candidate.key]
        assert stages[:3] == [Stage.LOAD, Stage.VERIFY, Stage.TIME]
        assert stages.count(Stage.TIME) > 20  # each block of the race and of the fresh rounds
