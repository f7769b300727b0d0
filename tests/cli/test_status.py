import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.farm.test_status import STATUS
from tests.report.make import TARGET
from tunefarm.farm.roster import WorkerState
from tunefarm.farm.status import Driver, Ended
from tunefarm.model.trial import Stage, Status

WORKER = WorkerState(
    "GPU-1", TARGET.key, "n", "mlp.up", 3.0, 4, 30.0, 10.0, 10.0, 50.0, 1, "mlp.down cudnn:eng4 9.5 us"
)


def tell(path, **changes):
    """Put a record into a store."""
    from tunefarm.store import Store

    now = datetime.now(UTC)
    status = replace(STATUS, begun_at=now, beat_at=now, workers=(WORKER,), **changes)
    Store.open(path, create=True).statuses.put(status.sweep, status.to_json())


def test_a_store_of_which_no_sweep_told_is_one_clear_line(cli, store_path):
    result = cli("status", "--store", store_path)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"no sweep has told of itself in {store_path}\n"


def test_what_is_no_store_is_told(cli, tmp_path):
    result = cli("status", "--store", tmp_path)
    assert (result.code, result.out) == (4, "")
    assert "is no tunefarm store" in result.err


def test_a_running_sweep_shows_counts_failures_and_what_each_gpu_does(cli, store_path):
    state = replace(
        STATUS.state,
        elapsed_s=10.0,
        eta_s=75.0,
        ended={Stage.TIME: {Status.MEASURED: 40}, Stage.BUILD: {Status.DECLINED: 7, Status.CRASHED: 3}},
    )
    tell(store_path, driver=Driver.here(), state=state)
    lines = cli("status", "--store", store_path).out.splitlines()
    assert lines[0] == f"id  job: running, process {os.getpid()} on {Driver.here().host}"
    assert lines[1] == "  1/2 problems, 50 trials in 10 s (5/s), 1 min 15 s left"
    assert lines[2] == "  measure: 10 of 20 candidates built"
    assert lines[3] == "  not measured: 7 declined at build, 3 crashed at build"
    shown = " ".join(lines[-2].split())
    assert shown == "GPU-1 mlp.up for 3 s 4 30% 10% 10% 50% 1 mlp.down cudnn:eng4 9.5 us"


def test_a_sweep_whose_driver_died_is_told_as_such(cli, store_path, monkeypatch):
    tell(store_path, driver=replace(Driver.here(), began=0.0))
    monkeypatch.setattr("tunefarm.farm.status.GONE_S", -1.0)
    line = cli("status", "--store", store_path).out.splitlines()[0]
    assert "dead: process" in line
    assert line.endswith("the same sweep command resumes it")


def test_sweeps_that_ended_are_brief_and_the_latest_is_first(cli, store_path):
    tell(store_path, sweep="first", ended=Ended.FINISHED)
    tell(store_path, sweep="second", ended=Ended.FAILED)
    lines = cli("status", "--store", store_path).out.splitlines()
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == ["second", "first"]
    assert len(lines) == 5


def test_json_is_one_object(cli, store_path):
    tell(store_path, ended=Ended.FINISHED)
    payload = json.loads(cli("status", "--store", store_path, "--json").out)
    (sweep,) = payload["sweeps"]
    assert (sweep["is"], sweep["problems"], sweep["workers"][0]["busy"]) == ("finished", {"total": 2, "done": 1}, 0.5)


def test_a_record_that_is_none_is_named_and_hides_no_other(cli, store_path):
    tell(store_path, sweep="good", ended=Ended.FINISHED)
    (store_path / "status" / "bad.json").write_bytes(b'{"sweep": ')
    result = cli("status", "--store", store_path)
    assert result.code == 4
    assert result.out.startswith("good  job: finished")
    assert "the record of sweep bad can't be read" in result.err


def test_text_of_a_record_can_do_nothing_to_a_terminal(cli, store_path):
    tell(store_path, job="\x1b[2J", ended=Ended.FINISHED)
    assert "\x1b" not in cli("status", "--store", store_path).out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_a_store_that_can_only_be_read_is_read(cli, store_path):
    tell(store_path, ended=Ended.FINISHED)
    store_path.chmod(0o500)
    try:
        assert cli("status", "--store", store_path).code == 0
    finally:
        store_path.chmod(0o700)


def test_watching_ends_with_the_last_sweep(cli, store_path, monkeypatch):
    monkeypatch.setattr("tunefarm.cli.status.WATCH_EVERY_S", 0.0)
    tell(store_path, driver=Driver.here())
    looks = []

    def later(_):
        looks.append(1)
        tell(store_path, ended=Ended.FINISHED)

    monkeypatch.setattr("tunefarm.cli.status.time.sleep", later)
    result = cli("status", "--store", store_path, "--watch")
    assert (result.code, len(looks)) == (0, 1)
    assert "running" in result.out
    assert "finished" in result.out


def test_another_process_sees_a_sweep_run_and_its_death(cli, tmp_path, monkeypatch):
    store = tmp_path / "store"
    command = [sys.executable, "-m", "tests.farm.run_planted", str(store), "200", "inline"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not list(store.glob("status/*.json")) or not list(store.glob("trials/v1/*.parquet")):
            assert process.poll() is None
            time.sleep(0.05)
        running = json.loads(cli("status", "--store", store, "--json").out)["sweeps"][0]
        process.send_signal(signal.SIGKILL)
    assert (running["is"], running["pid"], running["problems"]["total"]) == ("running", process.pid, 200)
    monkeypatch.setattr("tunefarm.farm.status.GONE_S", 0.0)
    assert "dead: process" in cli("status", "--store", store).out
