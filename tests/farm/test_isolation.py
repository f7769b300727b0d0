import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.farm import jobs
from tunefarm.farm.isolation import (
    Child,
    ChildClosedError,
    ChildDiedError,
    ChildTimedOutError,
    JobRaisedError,
)

AMPLE = 60.0


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.stop()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_a_job_returns_its_result_and_the_child_lives_on(child: Child) -> None:
    first = child.run(jobs.Pid(), AMPLE)
    assert child.run(jobs.Answer({"a": 1}), AMPLE) == {"a": 1}
    assert child.run(jobs.Pid(), AMPLE) == first != os.getpid()
    assert child.jobs_run == 3


def test_its_environment_is_its_own() -> None:
    child = Child({"TUNEFARM_TEST": "yes"})
    assert child.run(jobs.Environment("TUNEFARM_TEST"), AMPLE) == "yes"
    assert "TUNEFARM_TEST" not in os.environ
    child.stop()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGKILL, signal.SIGBUS])
def test_a_signal_is_named_and_the_next_job_gets_a_new_process(child: Child, number: signal.Signals) -> None:
    with pytest.raises(ChildDiedError) as caught:
        child.run(jobs.Die(number), AMPLE)
    assert caught.value.signal_name == number.name
    assert "free(): invalid pointer" in str(caught.value)
    assert child.run(jobs.Answer(1), AMPLE) == 1


@pytest.mark.parametrize("code", [0, 3])
def test_going_away_without_an_answer_is_a_death(child: Child, code: int) -> None:
    with pytest.raises(ChildDiedError, match=f"exit code {code}") as caught:
        child.run(jobs.Exit(code), AMPLE)
    assert caught.value.signal_name is None


def test_a_hang_is_killed_at_its_deadline(child: Child) -> None:
    child.run(jobs.Answer(0), AMPLE)
    pid = child.pid
    assert pid is not None
    with pytest.raises(ChildTimedOutError):
        child.run(jobs.Sleep(600), 0.5)
    assert eventually(lambda: not is_alive(pid))
    assert child.run(jobs.Answer(2), AMPLE) == 2


def test_what_the_child_started_is_killed_with_it(child: Child) -> None:
    started: list[int] = []

    def on_event(pid: int) -> float:
        started.append(pid)
        return 0.5

    with pytest.raises(ChildTimedOutError):
        child.run(jobs.SpawnAndSleep(), AMPLE, on_event)
    assert eventually(lambda: not is_alive(started[0]))


@pytest.mark.parametrize("kind", list(jobs.RAISED))
def test_whatever_a_job_raises_comes_back_as_text(child: Child, kind: str) -> None:
    with pytest.raises(JobRaisedError) as caught:
        child.run(jobs.Raise(kind), AMPLE)
    assert caught.value.kind == kind
    assert child.run(jobs.Answer(3), AMPLE) == 3


def test_a_result_that_cannot_be_pickled_is_the_jobs_failure(child: Child) -> None:
    with pytest.raises(JobRaisedError):
        child.run(jobs.ReturnUnpicklable(), AMPLE)
    assert child.run(jobs.Answer(4), AMPLE) == 4


def test_a_result_that_does_not_unpickle_here_is_the_jobs_failure(child: Child) -> None:
    with pytest.raises(JobRaisedError, match="can't be read: not here"):
        child.run(jobs.ReturnUnreadable(), AMPLE)
    assert child.run(jobs.Answer(4), AMPLE) == 4


def test_closing_frees_a_thread_whose_child_does_not_read() -> None:
    child = Child()
    child.run(jobs.Answer(0), AMPLE)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    threading.Timer(0.5, child.close).start()
    with pytest.raises(ChildClosedError):
        child.run(jobs.Answer(bytes(5_000_000)), AMPLE)


def test_megabytes_on_stdout_neither_block_nor_reach_ours(child: Child, capfd: pytest.CaptureFixture[str]) -> None:
    assert child.run(jobs.Babble(), AMPLE) == "done"
    out, err = capfd.readouterr()
    assert "noise" not in out + err


def test_a_hang_that_prints_without_end_is_killed_at_its_deadline(child: Child) -> None:
    with pytest.raises(ChildTimedOutError):
        child.run(jobs.BabbleForEver(), 1.0)
    assert child.run(jobs.Answer(2), AMPLE) == 2


def test_a_child_that_was_stopped_is_noticed_long_before_its_deadline(child: Child) -> None:
    with pytest.raises(ChildDiedError, match="somebody stopped it") as caught:
        child.run(jobs.StopItself(), 1e6)
    assert caught.value.signal_name == "SIGSTOP"
    assert child.run(jobs.Answer(2), AMPLE) == 2


def test_a_job_whose_child_dies_once_is_run_again_and_one_that_dies_twice_is_not(child: Child, tmp_path: Path) -> None:
    assert child.run_again(jobs.StopItself(str(tmp_path / "stopped")), 1e6) == "done"
    with pytest.raises(ChildDiedError):
        child.run_again(jobs.Exit(3), AMPLE)


def test_a_child_that_is_stopped_in_the_midst_of_a_message_does_not_hold_its_reader(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm.farm.isolation.STALL_S", 1.0)
    with pytest.raises(ChildTimedOutError):
        child.run(jobs.StopInTheMidst(), 1e6)
    assert child.run(jobs.Answer(2), AMPLE) == 2


def test_a_child_that_does_not_read_does_not_hold_its_writer(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefarm.farm.isolation.STALL_S", 1.0)
    child.run(jobs.Answer(0), AMPLE)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    assert child.run(jobs.Answer(bytes(5_000_000)), AMPLE) == bytes(5_000_000)


def test_events_come_in_order_and_may_move_the_deadline(child: Child) -> None:
    seen: list[int] = []

    def on_event(event: int) -> float:
        seen.append(event)
        return AMPLE

    assert child.run(jobs.Emitting(5, pause=0.2), 30.0, on_event) == "done"
    assert seen == [0, 1, 2, 3, 4]


def test_a_deadline_from_an_event_is_kept(child: Child) -> None:
    with pytest.raises(ChildTimedOutError):
        child.run(jobs.Emitting(2, pause=600), AMPLE, lambda _: 0.5)


def test_a_child_that_died_while_idle_costs_no_job(child: Child) -> None:
    child.run(jobs.Answer(0), AMPLE)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    time.sleep(0.3)
    assert child.run(jobs.Answer(5), AMPLE) == 5


def test_closing_from_another_thread_ends_the_job_under_way_and_all_later_ones() -> None:
    child = Child()
    child.run(jobs.Answer(0), AMPLE)
    threading.Timer(0.5, child.close).start()
    with pytest.raises(ChildClosedError):
        child.run(jobs.Sleep(600), AMPLE)
    with pytest.raises(ChildClosedError):
        child.run(jobs.Answer(1), AMPLE)


def test_an_idle_child_that_is_closed_goes_home_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = Child()
    child.run(jobs.AtExit(str(tmp_path / "tidied")), AMPLE)
    pid = child.pid
    assert pid is not None
    child.close()
    child.wait_closed()
    assert not is_alive(pid)
    assert [p.name for p in tmp_path.iterdir()] == ["tidied"]


@pytest.mark.parametrize("job", ["SpawnAndSleep", "HangHoldingTheLock"])
def test_no_process_outlives_a_parent_that_is_killed(job: str) -> None:
    script = textwrap.dedent(f"""
        from tests.farm import jobs
        from tunefarm.farm.isolation import Child
        child = Child()
        child.run(jobs.{job}(), 600, lambda pid: print(pid, child.pid, flush=True))
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert all(is_alive(pid) for pid in pids)
        time.sleep(0.5)
        parent.kill()
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))
