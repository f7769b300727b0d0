"""The words of a manifest, read strictly: what is not exactly one of them is `Malformed`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tunefarm.engines import ENGINE_NAMES
from tunefarm.model.candidate import Candidate, Knobs
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.ops import problem_from_dict
from tunefarm.runtime.strict_json import (
    Malformed,
    boolean,
    integer,
    items,
    optional,
    parse,
    read_fields,
    record,
    text,
)

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[0-9a-f]{20}")
_CHANNEL = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MAX_PROFILE = 2**16
_MAX_KNOBS = 256
_MAX_NOTES = 64


def digest_of(value: Any) -> str:
    """A SHA-256. Raises Malformed."""
    if not _DIGEST.fullmatch(text(value)):
        raise Malformed("must be a SHA-256 in lower-case hex")
    return str(value)


def key_of(value: Any) -> str:
    """A key of a word, as `content_key` makes it. Raises Malformed."""
    if not _KEY.fullmatch(text(value)):
        raise Malformed("must be a key of 20 hex digits")
    return str(value)


def channel_name(value: Any) -> str:
    """A channel's name. Raises Malformed if it can't be one."""
    if not _CHANNEL.fullmatch(text(value)):
        raise Malformed("must be up to 64 lower-case letters, digits, '.', '_' and '-', with no sign at either end")
    return str(value)


def moment_to_json(moment: datetime) -> str:
    """A time as text, `moment_of`'s opposite."""
    return moment.strftime(_TIME)


def moment_of(value: Any) -> datetime:
    """A time in UTC, whole seconds. Raises Malformed."""
    try:
        moment = datetime.strptime(text(value, limit=20), _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise Malformed("must be a time such as 2030-01-31T12:00:00Z") from None
    if moment.strftime(_TIME) != value:
        raise Malformed("must be a time such as 2030-01-31T12:00:00Z")
    return moment


def choice_of(value: Any, choices: tuple[str, ...]) -> str:
    """One of a few texts. Raises Malformed."""
    if text(value) not in choices:
        raise Malformed(f"must be {' or '.join(choices)}")
    return str(value)


def _knob(value: Any) -> tuple[str, int]:
    if not isinstance(value, list) or len(value) != 2:  # a name and its value
        raise Malformed("must be a name and a value")
    return text(value[0]), integer(value[1], low=-(2**63))


def knobs_of(value: Any) -> Knobs:
    """Knob choices. Raises Malformed."""
    knobs = items(value, _knob, limit=_MAX_KNOBS)
    if list(knobs) != sorted({name: (name, setting) for name, setting in knobs}.values()):
        raise Malformed("must be sorted by name, each once")
    return knobs


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """A problem as JSON values, `problem_of`'s opposite."""
    return {"op": problem.op, "fields": problem.to_dict()}


def problem_of(value: Any) -> Problem:
    """A problem, in the one spelling that `problem_to_json` gives it. Raises Malformed."""
    held = record(value, frozenset({"op", "fields"}))
    if not isinstance(held["fields"], dict):
        raise Malformed("must be an object", "fields")
    try:
        problem = problem_from_dict(text(held["op"]), held["fields"])
        spelled = problem.to_dict()
    except (InvalidProblem, TypeError, ValueError, OverflowError) as error:
        raise Malformed(f"describes no problem ({str(error)[:200]})") from None
    given = held["fields"]
    # A number given as text or a field left to its default would be a second spelling of one problem.
    if any(type(value) is not type(given.get(name)) or value != given[name] for name, value in spelled.items()):
        raise Malformed("is not spelled as the problem itself would be", "fields")
    return problem


def candidate_of(value: Any) -> Candidate:
    """A candidate, as `Candidate.to_dict` describes it. Raises Malformed."""
    return Candidate(**read_fields(value, _CANDIDATE))


def target_of(value: Any) -> Target:
    """A target, as `Target.to_dict` describes it. Raises Malformed."""
    target = Target(**read_fields(value, _TARGET))
    if target.profile:
        try:
            profile = parse(target.profile.encode())
        except Malformed as fault:
            raise fault.under("profile") from None
        if not isinstance(profile, dict):
            raise Malformed("must be an object in JSON", "profile")
    return target


_CANDIDATE: Mapping[str, Any] = {
    "engine": partial(choice_of, choices=ENGINE_NAMES),
    "name": text,
    "engine_id": partial(optional, read=integer),
    "knobs": knobs_of,
    "dynamic": boolean,
    "replayable": boolean,
    "proposed_by": text,
    "rank": integer,
    "notes": partial(items, read=partial(text, limit=64), limit=_MAX_NOTES),
}
_TARGET: Mapping[str, Any] = {
    **{field.name: text for field in fields(Target)},
    "kind": partial(choice_of, choices=("cuda", "cpu")),
    "profile": partial(text, limit=_MAX_PROFILE),
}
