"""Rows wait for a store that is away, for a while."""

import pytest

from tests.store.make import open_store, stored_plan, trial
from tunefarm.farm import recorder as module
from tunefarm.farm.recorder import Recorder
from tunefarm.model.errors import StoreError, StoreUnreachable


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Away:
    """A store whose server answers from some call on."""

    def __init__(self, store, calls, error=StoreUnreachable):
        self._store, self._left, self._error = store, calls, error

    def append_trials(self, trials):
        self._left -= 1
        if self._left >= 0:
            raise self._error("can't write s3://bucket/x: no route; check the network")
        self._store.append_trials(trials)

    def append_plans(self, plans):
        self._store.append_plans(plans)


def waiting(store, calls, error=StoreUnreachable):
    recorder = Recorder(Away(store, calls, error), "s1", "toys")
    recorder._trials = [trial()]
    recorder._plans = [stored_plan(b"plan")]
    return recorder


def test_rows_wait_until_the_store_answers_and_nothing_is_written_twice(tmp_path, clock):
    store = open_store(tmp_path / "store", create=True)
    recorder = waiting(store, 4)
    for _ in range(60):
        clock.now += 1
        recorder.flush_if_due()
    assert store.trials() == [trial()]
    assert recorder.written == 1
    assert store.sql("SELECT (SELECT count(*) FROM plans) + (SELECT count(*) FROM all_trials) AS n").to_pylist() == [
        {"n": 2}
    ]


def test_patience_ends_with_a_store_error_and_the_rows_are_kept(tmp_path, clock):
    recorder = waiting(open_store(tmp_path / "store", create=True), 10**6)

    def sweep_on():
        for _ in range(1000):
            clock.now += 1
            recorder.flush_if_due()

    with pytest.raises(StoreError, match="check the network"):
        sweep_on()
    assert module.PATIENCE_S <= clock.now < module.PATIENCE_S + module.RETRY_S[1] + 2
    assert recorder._trials == [trial()]


def test_so_does_having_too_many_rows(tmp_path, clock):
    recorder = waiting(open_store(tmp_path / "store", create=True), 10**6)
    recorder._trials *= module.MOST_WAITING
    clock.now += 1
    with pytest.raises(StoreError):
        recorder.flush_if_due()


def test_the_last_flush_tries_for_seconds_only(tmp_path, clock):
    store = open_store(tmp_path / "store", create=True)
    recorder = waiting(store, 2)
    recorder.flush()
    assert store.trials() == [trial()]
    recorder = waiting(store, 10**6)
    with pytest.raises(StoreUnreachable):
        recorder.flush()
    assert clock.now < 5


def test_a_sweep_of_many_parts_puts_them_together_and_goes_on_if_it_can_not(tmp_path, clock, monkeypatch, caplog):
    monkeypatch.setattr(module, "COMPACT_EVERY", 3)
    store = open_store(tmp_path / "store", create=True)
    recorder = Recorder(store, "s1", "toys")
    for number in range(7):
        recorder._trials = [trial(name=f"eng{number}")]
        clock.now += 2
        recorder.flush_if_due()
    assert len(store.trials()) == 7
    assert len(store._trials.table.parts.sound()) == 2

    def refuse():
        raise StoreError("no")

    monkeypatch.setattr(store, "compact", refuse)
    for number in range(7, 10):
        recorder._trials = [trial(name=f"eng{number}")]
        clock.now += 2
        recorder.flush_if_due()
    assert len(store.trials()) == 10
    assert "not put together for now" in caplog.text


def test_a_store_that_refuses_is_told_at_once(tmp_path, clock):
    recorder = waiting(open_store(tmp_path / "store", create=True), 10**6, StoreError)
    clock.now += 1
    with pytest.raises(StoreError):
        recorder.flush_if_due()
    assert clock.now == 1
