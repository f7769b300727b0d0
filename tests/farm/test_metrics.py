"""Figures for Ray's endpoint, with Ray's classes replaced by ones that remember: its exporter needs a cluster."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.farm.test_status import STATE
from tests.targets import H200
from tunefarm.farm.executor import Measuring
from tunefarm.farm.messages import WorkerFacts
from tunefarm.farm.metrics import RayMetrics
from tunefarm.farm.roster import Roster
from tunefarm.model.trial import Stage, Status


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    values: Counter[str] = Counter()

    class Metric:
        def __init__(self, name: str, doc: str, tags: tuple[str, ...]) -> None:
            self.name = name

        def set_default_tags(self, tags: dict[str, str]) -> None:
            self.tags = tags

        def key(self, tags: dict[str, str] | None) -> str:
            return " ".join([self.name, *(tags or {}).values()])

        def inc(self, value: float, tags: dict[str, str]) -> None:
            assert value > 0
            values[self.key(tags)] += value

        def set(self, value: float, tags: dict[str, str] | None = None) -> None:
            values[self.key(tags)] = value

    monkeypatch.setattr("ray.util.metrics.Counter", Metric)
    monkeypatch.setattr("ray.util.metrics.Gauge", Metric)
    monkeypatch.setattr("tunefarm.farm.metrics.EVERY_S", 0.0)
    return values


def test_counters_rise_by_what_is_new(told: Counter[str]) -> None:
    roster = Roster(lambda: 0.0)
    roster.joined(Measuring(None, WorkerFacts(H200, "GPU-1", "0", "node")))
    metrics = RayMetrics("job", roster)
    metrics.update(replace(STATE, problems_total=0))
    assert not told
    for measured, elapsed_s in ((3, 1.0), (8, 4.0)):
        metrics.update(replace(STATE, elapsed_s=elapsed_s, ended={Stage.TIME: {Status.MEASURED: measured}}))
    assert told["tunefarm_trials time measured"] == 8
    assert told["tunefarm_phase_seconds measure"] == 3.0
    assert told["tunefarm_problems"] == 2
    assert told["tunefarm_problems_done"] == 1
    assert told["tunefarm_trials_per_second"] == 2.0
    assert told["tunefarm_worker_busy GPU-1"] == 0.0
