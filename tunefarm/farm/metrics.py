"""A sweep's figures for Ray's own metrics endpoint, which Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tunefarm.farm.progress import SweepState
from tunefarm.farm.roster import Roster

EVERY_S = 1.0


class RayMetrics:
    """Progress for machines. Only for a sweep on Ray; where nothing collects them, they cost next to nothing."""

    def __init__(self, job: str, roster: Roster) -> None:
        """Made before Ray is up; the first figures follow once problems are counted."""
        self._job = job
        self._roster = roster
        self._metrics: dict[str, Any] | None = None
        self._told: dict[tuple[str, ...], float] = {}
        self._told_at = 0.0
        self._phase_at = (0.0, "")

    def update(self, state: SweepState) -> None:
        """Tell of the state, about once a second."""
        if not state.problems_total:
            return
        now = time.monotonic()
        if now - self._told_at < EVERY_S and state.problems_done < state.problems_total:
            return
        self._told_at = now
        metrics = self._metrics = self._metrics or _make(self._job)
        for stage, counts in state.ended.items():
            for status, count in counts.items():
                self._count("trials", {"stage": stage, "status": status}, count)
        passed, (before, phase) = state.elapsed_s - self._phase_at[0], self._phase_at
        if before:
            metrics["phase_seconds"].inc(max(passed, 1e-9), {"phase": phase})
        self._phase_at = state.elapsed_s, state.phase
        metrics["problems"].set(state.problems_total)
        metrics["problems_done"].set(state.problems_done)
        metrics["trials_per_second"].set(state.trials_per_s)
        for worker in self._roster.workers:
            metrics["worker_busy"].set(worker.busy, {"worker": worker.worker})

    def _count(self, name: str, tags: Mapping[str, str], total: float) -> None:
        assert self._metrics is not None
        key = (name, *tags.values())
        more = total - self._told.get(key, 0.0)
        if more > 0:
            self._metrics[name].inc(more, dict(tags))
            self._told[key] = total


def _make(job: str) -> dict[str, Any]:
    from ray.util.metrics import Counter, Gauge

    metrics: dict[str, Any] = {
        "trials": Counter("tunefarm_trials", "Trials of this run.", ("job", "stage", "status")),
        "phase_seconds": Counter("tunefarm_phase_seconds", "Seconds spent in each phase.", ("job", "phase")),
        "problems": Gauge("tunefarm_problems", "Problems of the job, on all targets.", ("job",)),
        "problems_done": Gauge("tunefarm_problems_done", "Problems that need no more.", ("job",)),
        "trials_per_second": Gauge("tunefarm_trials_per_second", "Trials of this run by its time.", ("job",)),
        "worker_busy": Gauge("tunefarm_worker_busy", "Share of its time that a GPU had work.", ("job", "worker")),
    }
    for metric in metrics.values():
        metric.set_default_tags({"job": job})
    return metrics
