"""The real loop, lane, rows and store with many simulated workers: nothing is lost, nothing twice, each has work."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.farm.run_planted import Silent
from tests.farm.simulated import H200, SimulatedFarm, make_job
from tunefarm.farm.resume import plan_lane
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
