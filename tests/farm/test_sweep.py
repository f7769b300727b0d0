import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.farm import planted
from tests.farm.run_planted import Silent, make_job, sweep
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.model.errors import FarmError
from tunefarm.model.trial import Standing, Status, Trial
from tunefarm.store import Store


def rows(store: Path) -> list[Trial]:
    return Store.open(store).trials()


def expected_rows(problems: int) -> Counter[tuple[str, str]]:
    names = [*planted.FEW_DEEDS, "eager"]
    return Counter((task.name, name) for task in make_job(problems).tasks for name in names)


def counted(trials: list[Trial]) -> Counter[tuple[str, str]]:
    return Counter((t.name, t.outcome.candidate.name) for t in trials)


def all_rows(store: Path) -> int:
    return int(Store.open(store).sql("SELECT count(*) AS n FROM all_trials").to_pylist()[0]["n"])


def check(store: Path, problems: int) -> None:
    trials = rows(store)
    assert counted(trials) == expected_rows(problems)
    statuses = {t.outcome.candidate.name: t.outcome.status for t in trials}
    assert statuses == {
        "right": Status.MEASURED,
        "slow": Status.MEASURED,
        "eager": Status.MEASURED,
        "build-segfault": Status.CRASHED,
        "build-decline": Status.DECLINED,
        "load-raise": Status.FAILED,
        "run-segfault": Status.CRASHED,
        "run-wrong": Status.WRONG,
    }
    for task in make_job(problems).tasks:
        winners = [t for t in trials if t.name == task.name and t.outcome.standing is Standing.WON]
        assert len(winners) == 1
        assert winners[0].outcome.candidate.name in ("right", "eager")
        if winners[0].outcome.candidate.engine == planted.FEW:
            assert winners[0].plan_digest is not None
            assert Store.open(store).plan(winners[0].plan_digest)


@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.ray)])
def test_every_candidate_gets_one_row_and_the_same_command_again_does_nothing(tmp_path: Path, executor: str) -> None:
    progress = Silent()
    first = sweep(tmp_path, 3, executor, progress=progress)
    assert first.interrupted is None
    assert (first.problems, first.already_done) == (3, 0)
    check(tmp_path, 3)
    last = progress.states[-1]
    assert (last.problems_total, last.problems_done, last.measured, last.wrong) == (3, 3, 9, 3)

    again = sweep(tmp_path, 3, executor)
    assert (again.already_done, again.trials_written) == (3, 0)
    assert all_rows(tmp_path) == first.trials_written

    more = sweep(tmp_path, 4, executor)
    assert (more.already_done, more.trials_written) == (3, 8)
    check(tmp_path, 4)


def test_retry_tries_again_what_ended_so_and_nothing_else(tmp_path: Path) -> None:
    sweep(tmp_path, 1)
    before = {t.outcome.candidate.name: t for t in rows(tmp_path)}
    sweep(tmp_path, 1, retry=(Status.CRASHED,))
    after = {t.outcome.candidate.name: t for t in rows(tmp_path)}
    renewed = {name for name in before if before[name].finished_at != after[name].finished_at}
    # The baselines and the stored winner race again beside a candidate that is tried anew.
    assert {"build-segfault", "run-segfault"} <= renewed <= {"build-segfault", "run-segfault", "eager", "right"}
    assert before.keys() == after.keys()


def start(store: Path, problems: int, executor: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.farm.run_planted", str(store), str(problems), executor]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_for_rows(store: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not list(store.glob("trials/v1/*.parquet")):
        assert process.poll() is None, "it ended before it wrote a row"
        assert time.monotonic() < end
        time.sleep(0.05)


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.ray)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_stopped_leaves_no_process_and_resumes_without_loss(
    tmp_path: Path, executor: str, number: signal.Signals
) -> None:
    problems = 40
    with start(tmp_path, problems, executor) as process:
        wait_for_rows(tmp_path, process)
        processes = family(process.pid)
        os.kill(process.pid, number)
        code = process.wait(timeout=30)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]

    stopped_at = all_rows(tmp_path)
    assert 0 < stopped_at < problems * 8
    result = sweep(tmp_path, problems, "inline")
    assert result.interrupted is None
    check(tmp_path, problems)
    assert all_rows(tmp_path) == problems * 8, "nothing twice"


@pytest.mark.ray
@pytest.mark.parametrize("after_s", [0.5, 3.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_while_ray_starts_ends_the_sweep_in_order(
    tmp_path: Path, number: signal.Signals, after_s: float
) -> None:
    with start(tmp_path, 3, "ray") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(after_s)
        processes = family(process.pid)
        os.kill(process.pid, number)
        code = process.wait(timeout=60)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_an_address_that_nobody_listens_at_is_refused_at_once(tmp_path: Path) -> None:
    options = SweepOptions(address="localhost:1")
    with pytest.raises(FarmError, match="no Ray cluster answers at localhost:1"):
        run_sweep(make_job(1), Store.open(tmp_path, create=True), options, Silent())
