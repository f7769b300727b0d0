"""The real loop, lane, rows and store with many simulated workers: nothing is lost, nothing twice, each has work."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.farm.run_planted import Silent
from tests.farm.simulated import H200, SimulatedFarm, make_job
from tunefarm.farm.progress import SweepState
from tunefarm.farm.resume import plan_lane
from tunefarm.farm.status import Ended, read_status
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.store import Store


def rows(store: Store) -> Counter[str]:
    return Counter(row["trial_key"] for row in store.sql("SELECT trial_key FROM all_trials").to_pylist())


@pytest.mark.parametrize("lose", [0.0, 0.02])
def test_many_workers_do_every_candidate_once(tmp_path: Path, lose: float) -> None:
    job = make_job(150)
    store = Store.open(tmp_path, create=True)
    farm = SimulatedFarm(64, 20, plan_bytes=64, lose=lose)
    result = run_sweep(job, store, SweepOptions(), Silent(), farm)
    found = rows(store)
    assert set(found.values()) == {1}
    assert len(found) == result.trials_written
    assert (farm.losses > 0) == (lose > 0)
    if not lose:
        assert len(found) == 150 * 20
        assert all(worker.problems >= 2 for worker in result.workers)
    assert plan_lane(job.tasks, H200, store, ())[0] == []


def test_a_burst_grows_with_the_devices(tmp_path: Path) -> None:
    def phases(gpus: int) -> int:
        progress = Silent()
        run_sweep(
            make_job(64),
            Store.open(tmp_path / str(gpus), create=True),
            SweepOptions(),
            progress,
            SimulatedFarm(gpus, 4),
        )
        shown = [state.phase for state in progress.states]
        return sum(one != other for one, other in pairwise(shown))

    assert phases(4) < phases(1)


class Interrupting(Silent):
    """Sends Ctrl-C once there are rows."""

    def update(self, state: SweepState) -> None:
        if state.trials and not any(seen.trials for seen in self.states):
            os.kill(os.getpid(), signal.SIGINT)
        super().update(state)


def test_ctrl_c_under_many_workers_loses_nothing(tmp_path: Path) -> None:
    job, store = make_job(600), Store.open(tmp_path, create=True)
    stopped = run_sweep(job, store, SweepOptions(), Interrupting(), SimulatedFarm(256, 10, plan_bytes=64))
    assert stopped.interrupted == signal.SIGINT
    assert 0 < stopped.trials_written < 6000
    (record,) = store.statuses.all().values()
    assert read_status(record).ended is Ended.INTERRUPTED
    rest = run_sweep(job, store, SweepOptions(), Silent(), SimulatedFarm(256, 10, plan_bytes=64))
    assert rest.interrupted is None
    found = rows(store)
    assert len(found) == 6000
    assert set(found.values()) <= {1, 2}, "anchors race again beside what is left of their problem"


SCRIPT = """
import sys
from pathlib import Path
from tests.farm.run_planted import Silent
from tests.farm.simulated import SimulatedFarm, make_job
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.store import Store
store = Store.open(Path(sys.argv[1]), create=True)
run_sweep(make_job(2000), store, SweepOptions(), Silent(), SimulatedFarm(256, 10, plan_bytes=64))
"""


def test_a_driver_of_many_workers_that_is_killed_resumes_without_loss(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)]) as process:
        while not list(tmp_path.glob("trials/v1/*.parquet")):
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    store = Store.open(tmp_path)
    before = len(rows(store))
    assert 0 < before < 20_000
    run_sweep(make_job(2000), store, SweepOptions(), Silent(), SimulatedFarm(256, 10, plan_bytes=64))
    found = rows(store)
    assert len(found) == 20_000
    assert not store.damage
