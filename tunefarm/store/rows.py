"""Trials as rows of plain columns, and back."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC
from functools import lru_cache
from typing import Any

from tunefarm.model.candidate import Candidate, Knobs, Note
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.keys import canonical_json, content_key
from tunefarm.model.problem import Problem
from tunefarm.model.trial import (
    Block,
    Check,
    Measurement,
    Outcome,
    OutputError,
    Stage,
    Standing,
    Status,
    Trial,
    Verdict,
    trial_key,
)
from tunefarm.store.plain_json import load_object

Row = dict[str, Any]
STRANGE = (ArithmeticError, AttributeError, InvalidProblem, LookupError, RecursionError, TypeError, ValueError)
"""What rebuilding raises where a row is in another version's words, or in nobody's: any column may hold anything."""
_NEVER_NULL = (
    *("sweep", "job", "name", "op", "problem", "label", "target", "engine", "candidate_name", "dynamic", "replayable"),
    *("proposed_by", "rank", "reason", "why", "worker"),
)

ProblemFromDict = Callable[[str, Mapping[str, Any]], Problem]


def trial_row(trial: Trial) -> Row:
    """One row of `schema.TRIALS`, less its place. NaN is stored as null: tools don't agree on how it compares."""
    problem, outcome, candidate = trial.problem, trial.outcome, trial.outcome.candidate
    return {
        "trial_key": trial.key,
        "sweep": trial.sweep,
        "job": trial.job,
        "name": trial.name,
        **_problem_columns(_Keyed(problem.key, problem)),
        "target": trial.target,
        "protocol": trial.protocol.key,
        "protocol_json": _protocol_json(trial.protocol),
        "cache": trial.protocol.cache.value,
        "candidate": candidate.key,
        "engine": candidate.engine,
        "candidate_name": candidate.name,
        "engine_id": candidate.engine_id,
        "knobs": knobs_json(candidate.knobs),
        "resolved_knobs": knobs_json(trial.resolved_knobs),
        "dynamic": candidate.dynamic,
        "replayable": candidate.replayable,
        "proposed_by": candidate.proposed_by,
        "rank": candidate.rank,
        "notes": list(candidate.notes),
        "is_default": candidate.is_default,
        "status": outcome.status.value,
        "stage": outcome.stage.value,
        "reason": outcome.reason,
        "signal": outcome.signal,
        "standing": outcome.standing and outcome.standing.value,
        "why": outcome.why,
        **_verdict_columns(outcome.verdict),
        **_measurement_columns(outcome.measurement, problem),
        "plan_digest": trial.plan_digest,
        "plan_bytes": trial.plan_bytes,
        "workspace_bytes": trial.workspace_bytes,
        "build_ms": _number(trial.build_ms),
        "finished_at": trial.finished_at,
        "worker": trial.worker,
    }


@dataclass(frozen=True)
class _Keyed:
    """A problem that equals another only if the keys do: 1 and 1.0 are equal, and make two keys."""

    key: str
    problem: Problem = field(compare=False)


@lru_cache(maxsize=256)
def _problem_columns(keyed: _Keyed) -> Row:
    problem = keyed.problem
    return {
        "op": problem.op,
        "problem": problem.key,
        "problem_json": canonical_json(problem.to_dict()),
        "label": problem.label,
        "dtype": problem.tensors[0].dtype.value,
    }


@lru_cache(maxsize=256)
def _work(problem: Problem) -> tuple[int, int]:
    """Floating-point operations and bytes of one launch."""
    return problem.flops, problem.bytes_moved


@lru_cache(maxsize=256)
def _protocol_json(protocol: Protocol) -> str:
    return canonical_json(asdict(protocol))


def trial_of(row: Mapping[str, Any], problem: Problem) -> Trial:
    """The trial that `trial_row` described, its problem being rebuilt already.

    An earlier version's row may lack columns, and its protocol fields: they get their defaults, so that the trial's key
    may then be another than the row's.

    Raises:
        STRANGE: one of these, if the row describes none, or another than its keys say.
    """
    if nulls := [column for column in _NEVER_NULL if row[column] is None]:
        raise ValueError(f"{nulls[0]} is null")
    candidate = Candidate(
        engine=row["engine"],
        name=row["candidate_name"],
        engine_id=row["engine_id"],
        knobs=_knobs(row["knobs"]),
        dynamic=row["dynamic"],
        replayable=row["replayable"],
        proposed_by=row["proposed_by"],
        rank=row["rank"],
        notes=tuple(row["notes"] or ()),
    )
    protocol, protocol_key = _protocol(row["protocol_json"])
    if trial_key(problem.key, row["target"], candidate.key, protocol_key) != row["trial_key"]:
        raise ValueError("its key is not that of what it describes")
    outcome = Outcome(
        candidate=candidate,
        status=Status(row["status"]),
        stage=Stage(row["stage"]),
        reason=row["reason"],
        signal=row["signal"],
        verdict=_verdict(row),
        measurement=_measurement(row),
        standing=Standing(row["standing"]) if row["standing"] is not None else None,
        why=row["why"],
    )
    return Trial(
        sweep=row["sweep"],
        job=row["job"],
        name=row["name"],
        problem=problem,
        target=row["target"],
        protocol=protocol,
        outcome=outcome,
        finished_at=row["finished_at"].astimezone(UTC),
        worker=row["worker"],
        plan_digest=row["plan_digest"],
        plan_bytes=row["plan_bytes"],
        workspace_bytes=row["workspace_bytes"],
        build_ms=row["build_ms"],
        resolved_knobs=_knobs(row["resolved_knobs"]),
    )


@lru_cache(maxsize=256)
def _protocol(text: str) -> tuple[Protocol, str]:
    """A protocol, and its key when it was written. Shared among the rows that have it: its key is then made once."""
    fields = load_object(text)
    forbid = tuple(map(Note, fields.get("forbid", ())))
    return Protocol(**{**fields, "cache": Cache(fields["cache"]), "forbid": forbid}), content_key("protocol", fields)


def knobs_json(knobs: Knobs) -> str:
    """Knobs as a JSON object: unlike Parquet's map type, every tool can read, group by and compare it."""
    return json.dumps(dict(knobs), separators=(",", ":"))


def _knobs(text: str) -> Knobs:
    knobs = load_object(text)
    if not all(isinstance(value, int) for value in knobs.values()):
        raise ValueError("a knob is no whole number")
    return tuple(knobs.items())


def _verdict_columns(verdict: Verdict | None) -> Row:
    outputs = verdict.outputs if verdict else ()
    return {
        "is_right": verdict and verdict.right,
        "verdict_reason": verdict and verdict.reason,
        "worst_l2": _worst(o.l2 for o in outputs),
        "worst_block": _worst(o.block for o in outputs),
        "worst_element": _worst(o.element for o in outputs),
        "worst_gain": _worst(abs(o.gain) for o in outputs),
        "errors": verdict
        and [
            {
                "name": o.name,
                "l2": _number(o.l2),
                "block": _number(o.block),
                "element": _number(o.element),
                "gain": _number(o.gain),
            }
            for o in outputs
        ],
        "deterministic": verdict and verdict.deterministic,
        "repeats": verdict and verdict.repeats,
        "checks": verdict and [check.value for check in verdict.checks],
    }


def _verdict(row: Mapping[str, Any]) -> Verdict | None:
    if row["is_right"] is None:
        return None
    outputs = tuple(
        OutputError(e["name"], _float(e["l2"]), _float(e["block"]), _float(e["element"]), _float(e["gain"]))
        for e in row["errors"]
    )
    return Verdict(
        right=row["is_right"],
        reason=row["verdict_reason"],
        outputs=outputs,
        deterministic=row["deterministic"],
        repeats=row["repeats"],
        checks=tuple(Check(check) for check in row["checks"] or ()),
    )


def _measurement_columns(measurement: Measurement | None, problem: Problem) -> Row:
    if measurement is None:
        return {}
    m = measurement
    return {
        "time_us": _number(m.time_us),
        "low_us": _number(m.low_us),
        "high_us": _number(m.high_us),
        "tflops": _rate(_work(problem)[0] / 1e6, m.time_us),
        "gb_per_s": _rate(_work(problem)[1] / 1e3, m.time_us),
        "method": m.method,
        "load_ms": _number(m.load_ms),
        "first_call_ms": _number(m.first_call_ms),
        "eager_us": _number(m.eager_us),
        "replay_us": _number(m.replay_us),
        "blocks": [{"round": b.round, "launches": b.launches, "us": _number(b.us)} for b in m.blocks],
    }


def _measurement(row: Mapping[str, Any]) -> Measurement | None:
    if row["method"] is None:
        return None
    return Measurement(
        time_us=_float(row["time_us"]),
        low_us=_float(row["low_us"]),
        high_us=_float(row["high_us"]),
        method=row["method"],
        blocks=tuple(Block(b["round"], b["launches"], _float(b["us"])) for b in row["blocks"]),
        load_ms=_float(row["load_ms"]),
        first_call_ms=_float(row["first_call_ms"]),
        eager_us=row["eager_us"],
        replay_us=row["replay_us"],
    )


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _float(stored: float | None) -> float:
    return math.nan if stored is None else stored


def _worst(errors: Iterable[float]) -> float | None:
    """The largest error, null if there is none or one is not a number: a NaN must not pass for a small error."""
    values = list(errors)
    return None if not values or any(math.isnan(v) for v in values) else max(values)


def _rate(work: float, time_us: float) -> float | None:
    return work / time_us if time_us > 0 else None
