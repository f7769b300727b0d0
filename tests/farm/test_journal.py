"""Work that kills the driver is met a few times, not for ever."""

import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.farm import planted
from tunefarm.farm.journal import ALONE_AFTER, MAX_STARTS, StartJournal
from tunefarm.model.trial import Stage, Status
from tunefarm.store import Store

START = (Stage.BUILD, "some key")


def die_under(folder: Path, start: tuple[Stage, str]) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tunefarm.farm.journal import StartJournal, Stage;"
        "StartJournal(Path(sys.argv[1])).begin([(Stage(sys.argv[2]), sys.argv[3])]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(folder), *start], check=False)


@pytest.mark.parametrize("stage", ["build", "run"])
def test_a_candidate_that_kills_the_driver_ends_in_a_row(tmp_path: Path, stage: str) -> None:
    command = [sys.executable, "-m", "tests.farm.run_planted", str(tmp_path), "1", "inline", planted.DEADLY[stage]]
    codes: list[int] = []
    while not codes or (codes[-1] and len(codes) < 6):
        codes.append(subprocess.run(command, check=False, capture_output=True, timeout=120).returncode)
    assert codes[-1] == 0
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) - 1 == MAX_STARTS
    trials = Store.open(tmp_path).trials()
    assert len(trials) == len({t.key for t in trials}) == 4
    ends = {t.outcome.candidate.name: t.outcome for t in trials}
    deadly = ends.pop(f"{stage}-regicide")
    assert deadly.status is Status.CRASHED
    assert f"started {MAX_STARTS} times and never finished" in deadly.reason
    assert {outcome.status for outcome in ends.values()} == {Status.MEASURED}
    assert not list((tmp_path / "journal").iterdir())


def test_only_drivers_that_died_count(tmp_path: Path) -> None:
    living = StartJournal(tmp_path)
    living.begin([START])
    for count in range(1, ALONE_AFTER + 1):
        die_under(tmp_path, START)
        other = StartJournal(tmp_path)
        assert other.starts(START) == count
        other.begin([(Stage.LOAD, "called off")])
        other.close()
    assert StartJournal(tmp_path).suspects() == {START[1]}


def test_what_a_driver_outlived_counts_no_more(tmp_path: Path) -> None:
    die_under(tmp_path, START)
    journal = StartJournal(tmp_path)
    journal.begin([START])
    journal.end([START])
    journal.close()
    assert not list(tmp_path.iterdir())


def test_damaged_and_foreign_lines_are_ignored_with_one_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    die_under(tmp_path, START)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(b'\xff\x00garbage\n[1]\n{"what": "begin", "starts": 3}\n' + path.read_bytes() + b'{"what": "beg')
    with caplog.at_level(logging.WARNING):
        assert StartJournal(tmp_path).starts(START) == 1
    assert [record.getMessage() for record in caplog.records] == [f"{path}: 4 lines of the start journal can't be read"]
