"""What a sweep tells of itself, and how that is read by others."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.farm.run_planted import Silent
from tests.farm.simulated import SimulatedFarm, make_job
from tunefarm.farm.bulletin import KEPT, Bulletin
from tunefarm.farm.progress import SweepState
from tunefarm.farm.roster import Roster
from tunefarm.farm.status import Driver, Ended, Liveness, SweepStatus, read_status
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.model.errors import StoreError
from tunefarm.store import Store

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STATE = SweepState(2, 1, 20, 10, 1, 8, 1, 0, 0, 8, ("mlp.up cudnn:eng4 1.2x",), 3.0, None, "measure")
STATUS = SweepStatus("id", "job", Driver("elsewhere", 1, 0.0), NOW, NOW, None, STATE)


def gone() -> Driver:
    """A process of this host that ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return replace(Driver.here(), pid=process.pid)


@pytest.mark.parametrize(
    ("driver", "ended", "age_s", "liveness"),
    [
        (STATUS.driver, None, 3, Liveness.RUNNING),
        (STATUS.driver, None, 61, Liveness.SILENT),
        (STATUS.driver, Ended.FINISHED, 10**6, Liveness.FINISHED),
        (STATUS.driver, Ended.INTERRUPTED, 0, Liveness.INTERRUPTED),
        (Driver.here(), None, 10, Liveness.RUNNING),
        (replace(Driver.here(), began=0.0), None, 10, Liveness.DEAD),
        (gone(), None, 2, Liveness.RUNNING),
        (gone(), None, 10, Liveness.DEAD),
        (gone(), Ended.FINISHED, 10, Liveness.FINISHED),
        (STATUS.driver, None, -100, Liveness.RUNNING),
    ],
)
def test_a_sweep_is_told_by_its_end_its_process_or_its_silence(
    driver: Driver, ended: Ended | None, age_s: float, liveness: Liveness
) -> None:
    status = replace(STATUS, driver=driver, ended=ended)
    assert status.liveness(NOW + timedelta(seconds=age_s)) is liveness


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_status(STATUS.to_json()) == STATUS


@pytest.mark.parametrize("change", [{"version": 2}, {"state": None}, {"beat_at": "2030-01-01T00:00:00"}, {"job": 3}])
def test_what_is_no_record_is_told_in_one_line(change: dict[str, object]) -> None:
    record = json.loads(STATUS.to_json()) | change
    with pytest.raises(ValueError, match=next(iter(change))) as caught:
        read_status(json.dumps(record).encode())
    assert "\n" not in str(caught.value)


def statuses(store: Store) -> list[SweepStatus]:
    return [read_status(record) for record in store.statuses.all().values()]


def test_a_sweep_leaves_a_record_of_how_it_ended_with_what_its_workers_did(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    farm = SimulatedFarm(3, 40, lose_measures=(2,))
    result = run_sweep(make_job(12), store, SweepOptions(), Silent(), farm)
    (status,) = statuses(store)
    assert (status.sweep, status.job, status.ended) == (result.sweep, "simulated", Ended.FINISHED)
    assert status.state.trials == result.trials_written == 12 * 40
    assert (status.state.problems_total, status.state.problems_done) == (12, 12)
    assert sum(worker.problems for worker in status.workers) == 12
    assert sum(worker.losses for worker in status.workers) == farm.losses == 1
    assert not any(worker.problem for worker in status.workers)
    assert sorted(w.problems for w in result.workers) == sorted(w.problems for w in status.workers)


def test_later_sweeps_remove_old_records_but_none_of_a_sweep_that_runs(tmp_path: Path) -> None:
    store = Store.open(tmp_path, create=True)
    running = replace(STATUS, sweep="2020", driver=Driver.here(), beat_at=datetime.now(UTC))
    store.statuses.put("2020", running.to_json())
    store.statuses.put("2021", b"no record")
    for number in range(KEPT):
        store.statuses.put(f"2022-{number:02}", replace(STATUS, ended=Ended.FINISHED).to_json())
    bulletin = Bulletin(store, "2030", "job", Roster())
    bulletin.update(STATE)
    bulletin.open()
    bulletin.close(Ended.FINISHED)
    assert set(store.statuses.all()) == {"2020", "2030", *(f"2022-{number:02}" for number in range(KEPT))}


def test_a_store_that_takes_no_record_ends_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path, create=True)

    def refuse(*_: object) -> None:
        raise StoreError("full")

    monkeypatch.setattr(store.statuses, "put", refuse)
    result = run_sweep(make_job(2), store, SweepOptions(), Silent(), SimulatedFarm(2, 4))
    assert result.trials_written == 8
    assert store.statuses.all() == {}
