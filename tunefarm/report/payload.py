"""Summaries as plain JSON values, for `--json`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from tunefarm.model.target import Target
from tunefarm.model.trial import Trial
from tunefarm.report.summary import ProblemSummary, error_of, time_ratio
from tunefarm.report.totals import Gain, KernelCacheUse, Totals

VERSION = 1
"""In every object that a command prints. Raised when a field changes its meaning or goes."""


def summary_payload(summary: ProblemSummary) -> dict[str, Any]:
    """A summary. Times in microseconds unless named otherwise, sizes in bytes; gains are ratios of times."""
    return {
        "name": summary.name,
        "problem": summary.problem.key,
        "label": summary.problem.label,
        "target": summary.target,
        "protocol": summary.protocol.key,
        "cache": summary.protocol.cache.value,
        "winner": _trial_or_none(summary.winner),
        "default": _trial_or_none(summary.default),
        "torch": _trial_or_none(summary.torch),
        "eager_torch": _trial_or_none(summary.eager),
        "gain_over_default": summary.gain_over(summary.default),
        "gain_over_torch": summary.gain_over(summary.torch),
        "gain_over_eager_torch": summary.gain_over(summary.eager),
        "spread": summary.spread,
        "counts": {status.value: count for status, count in summary.counts.items()},
        "refusals": [
            {"engine": trial.outcome.candidate.engine, "reason": trial.outcome.reason} for trial in summary.refusals
        ],
    }


def candidates_payload(summary: ProblemSummary) -> list[dict[str, Any]]:
    """Every candidate of a summary, the winner first."""
    return [
        {
            **trial_payload(trial),
            "ratio_to_winner": time_ratio(trial, summary.winner) if summary.winner else None,
        }
        for trial in summary.trials
    ]


def trial_payload(trial: Trial) -> dict[str, Any]:
    """A trial, less what its problem's other trials share and its single blocks."""
    outcome, candidate, measured = trial.outcome, trial.outcome.candidate, trial.outcome.measurement
    return {
        "candidate": candidate.key,
        "label": candidate.label,
        "engine": candidate.engine,
        "name": candidate.name,
        "is_default": candidate.is_default,
        "status": outcome.status.value,
        "stage": outcome.stage.value,
        "standing": outcome.standing.value if outcome.standing else None,
        "why": outcome.why,
        "reason": outcome.reason,
        "signal": outcome.signal,
        "time_us": _number(measured.time_us) if measured else None,
        "low_us": _number(measured.low_us) if measured else None,
        "high_us": _number(measured.high_us) if measured else None,
        "eager_us": _number(measured.eager_us) if measured else None,
        "replay_us": _number(measured.replay_us) if measured else None,
        "method": measured.method if measured else None,
        "load_ms": _number(measured.load_ms) if measured else None,
        "build_ms": _number(trial.build_ms),
        "error_l2": _number(error_of(trial)),
        "workspace_bytes": trial.workspace_bytes,
        "plan_bytes": trial.plan_bytes,
        "plan_digest": trial.plan_digest,
        "knobs": dict(trial.resolved_knobs or candidate.knobs),
        "worker": trial.worker,
        "sweep": trial.sweep,
        "finished_at": trial.finished_at.isoformat(),
    }


def totals_payload(totals: Totals) -> dict[str, Any]:
    """A job's totals."""
    return {
        "problems": totals.problems,
        "without_winner": totals.without_winner,
        "over_default": _gain(totals.over_default),
        "over_torch": _gain(totals.over_torch),
        "over_eager_torch": _gain(totals.over_eager),
        "counts": {status.value: count for status, count in totals.counts.items()},
    }


def kernel_cache_payload(use: KernelCacheUse) -> dict[str, Any]:
    """What the kernel cache saved for one dynamic candidate."""
    return {
        "target": use.target,
        "structure": use.structure,
        "candidate": use.candidate,
        "problems": use.problems,
        "first_ms": use.first_ms,
        "later_ms": use.later_ms,
        "static_ms": use.static_ms,
    }


def targets_payload(targets: Mapping[str, Target], keys: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Targets (those of the given keys), less cuDNN's long profile of each."""
    return [
        {"target": key, **{name: value for name, value in target.to_dict().items() if name != "profile"}}
        for key, target in targets.items()
        if keys is None or key in keys
    ]


def _trial_or_none(trial: Trial | None) -> dict[str, Any] | None:
    return trial_payload(trial) if trial else None


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    return {"geometric_mean": gain.mean, "problems": gain.problems} if gain else None


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None
