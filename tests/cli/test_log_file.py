import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.farm.run_planted import Silent
from tests.farm.simulated import SimulatedFarm, make_job
from tunefarm.cli.log_file import logged_to
from tunefarm.farm.executor import Measuring
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.model.errors import FarmError, UsageError
from tunefarm.store import Store


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_event_of_a_sweep_is_one_json_line(tmp_path: Path) -> None:
    with logged_to(tmp_path / "log"):
        result = run_sweep(
            make_job(3),
            Store.open(tmp_path / "s", create=True),
            SweepOptions(),
            Silent(),
            SimulatedFarm(2, 100, lose_measures=(1,)),
        )
    found = lines(tmp_path / "log")
    assert {line["sweep"] for line in found} == {result.sweep}
    assert all({"time", "level", "event"} <= line.keys() for line in found)
    events = [line["event"] for line in found]
    assert (events[0], events[-1]) == ("began", "finished")
    assert events.count("trial") == result.trials_written == 300
    assert events.count("winner") == 3
    (lost,) = (line for line in found if line["event"] == "worker lost")
    assert (lost["level"], lost["reason"]) == ("warning", "its simulated node went away")
    crashed = next(line for line in found if line.get("status") == "crashed")
    assert crashed["level"] == "warning"
    assert {"problem", "problem_key", "candidate", "stage", "reason", "worker", "time_us"} <= crashed.keys()


class NoFarm(SimulatedFarm):
    def start(self, check: Callable[[], None]) -> list[Measuring]:
        raise FarmError("no node answers")


def test_a_sweep_that_fails_says_why(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s", create=True)
    with logged_to(tmp_path / "log"), pytest.raises(FarmError):
        run_sweep(make_job(1), store, SweepOptions(), Silent(), NoFarm(1, 4))
    last = lines(tmp_path / "log")[-1]
    assert (last["event"], last["level"], last["reason"]) == ("failed", "error", "no node answers")


def test_without_a_log_nothing_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logged_to(None):
        run_sweep(make_job(1), Store.open(tmp_path / "s", create=True), SweepOptions(), Silent(), SimulatedFarm(1, 100))
    assert capsys.readouterr().err == ""


def test_a_log_that_can_not_be_written_is_refused_before_the_sweep(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"can't write the log .*nowhere/log: No such file"),
        logged_to(tmp_path / "nowhere" / "log"),
    ):
        pass


def test_a_full_disk_ends_no_sweep() -> None:
    with logged_to(Path("/dev/full")):
        logging.getLogger("tunefarm.sweep").warning("x")
