import pytest

from tests.targets import H200
from tunefarm.farm.executor import Measuring
from tunefarm.farm.messages import MeasureReport, WorkerFacts
from tunefarm.farm.roster import Roster
from tunefarm.model.candidate import Candidate
from tunefarm.model.trial import Measurement, Outcome, Stage, Standing, Status


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_workers_time_is_what_it_did_and_the_rest_is_waiting() -> None:
    clock = Clock()
    roster = Roster(clock)
    worker = Measuring(None, WorkerFacts(H200, "GPU-1", "0", "node"))
    roster.joined(worker)
    clock.now = 2.0
    roster.began(worker, "mlp.up")
    clock.now = 5.0
    (state,) = roster.workers
    assert (state.problem, state.since_s, state.waiting_s) == ("mlp.up", 3.0, 2.0)

    clock.now = 12.0
    time = Measurement(9.5, 9.4, 9.6, "graph", ())
    won = Outcome(Candidate("cudnn", "eng4"), Status.MEASURED, Stage.TIME, measurement=time, standing=Standing.WON)
    seconds = {Stage.LOAD: 1.0, Stage.REFERENCE: 1.0, Stage.VERIFY: 2.0, Stage.TIME: 5.0}
    roster.answered(worker, MeasureReport((won,), seconds=seconds))
    clock.now = 14.0
    (state,) = roster.workers
    assert (state.timing_s, state.verifying_s, state.loading_s, state.waiting_s) == (5.0, 3.0, 2.0, 4.0)
    assert (state.problem, state.problems, state.since_s) == ("", 1, 2.0)
    assert state.last == "mlp.up cudnn:eng4 9.5 us"
    assert state.busy == pytest.approx(10 / 14)


def test_a_lost_worker_keeps_its_place_and_counts() -> None:
    roster = Roster(Clock())
    worker = Measuring(None, WorkerFacts(H200, "GPU-1", "0", "node"))
    roster.joined(worker)
    roster.began(worker, "mlp.up")
    roster.lost(worker)
    (state,) = roster.workers
    assert (state.losses, state.problem) == (1, "")
