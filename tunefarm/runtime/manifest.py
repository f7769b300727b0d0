"""The manifest of a bundle: what is in it, for which problems and targets, and where each plan's bytes lie.

It travels as the payload of the bundle's signed envelope. Reading is strict: exact keys, exact types, bounds on every
length, so that what was verified has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Self

from tunefarm.model.candidate import Candidate, Knobs
from tunefarm.model.errors import BundleDamaged, BundleRefused
from tunefarm.model.job import Cache
from tunefarm.model.keys import canonical_json
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.runtime.strict_json import Malformed, boolean, integer, items, number, optional, parse, read_fields, text
from tunefarm.runtime.words import (
    candidate_of,
    channel_name,
    choice_of,
    digest_of,
    key_of,
    knobs_of,
    moment_of,
    moment_to_json,
    problem_of,
    problem_to_json,
    target_of,
)

FORMAT = 1
"""Version of the bundle's format. A reader refuses every other."""

MAX_ENTRIES = 30_000
MAX_TARGETS = 1_000
MAX_WITHDRAWN = 100_000
MAX_PLAN_BYTES = 2**28
"""Largest plan, packed or not: 256 MiB. Real ones have 3 KB to 1 MB."""


@dataclass(frozen=True)
class Figures:
    """What was measured of an entry's plan, beside what users have today. Microseconds of one launch; medians."""

    time_us: float
    low_us: float
    high_us: float
    """Interval of `time_us`: see `Measurement`."""
    default_us: float | None
    """cuDNN's heuristic's first choice, timed by the same device; None where there was none."""
    torch_us: float | None
    """The fastest of torch, timed by the same device; None where there was none."""
    eager_us: float | None
    """The plan launched from the host, back to back."""
    replay_us: float | None
    """The plan replayed from a CUDA graph."""
    method: str
    """How `time_us` was taken: `graph`, `events` or `wall`."""
    cache: Cache
    """State of the L2 cache when a timed launch began."""


@dataclass(frozen=True)
class Entry:
    """One problem on one target, and the plan that was chosen for it.

    The versions that made and measured the plan are those of its target.
    """

    name: str
    """The problem's name in the job that tuned it."""
    problem: Problem
    target: str
    """Key of one of the manifest's targets."""
    candidate: Candidate
    """What the plan was built from: enough to build it again, if `candidate.replayable`."""
    resolved_knobs: Knobs
    """Every knob as the plan's own content holds it. Empty for torch."""
    digest: str
    """SHA-256 of the plan's bytes, as hex: the plan's identity in stores and in lists of withdrawn plans."""
    packed_digest: str
    """SHA-256 of the bytes as they lie in the bundle, so that nothing unverified is unpacked."""
    offset: int
    """Where the packed bytes begin, counted from the end of the envelope."""
    packed_bytes: int
    raw_bytes: int
    workspace_bytes: int
    """Device memory that a launch needs beside its tensors."""
    zero_workspace: bool
    """Whether the workspace must be zeroed before the plan's first launch."""
    deterministic: bool | None
    """Whether launches on equal inputs gave equal bits when it was verified; None where nobody looked."""
    figures: Figures
    trial: str
    """Key of the trial that it came from."""
    why: str
    """Why this plan was chosen, in words."""


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds."""

    format: int
    channel: str
    """Line of bundles that supersede each other, such as `production`: lower case, digits, `.`, `_`, `-`."""
    counter: int
    """Place in that line, from 1. It never goes down, so that nobody can be handed an old bundle as a new one."""
    created: datetime
    """UTC, whole seconds."""
    expires: datetime | None
    """UTC, whole seconds: from then on the bundle is no longer to be pulled."""
    tunefarm: str
    """Version of tunefarm that wrote it."""
    targets: tuple[Target, ...]
    entries: tuple[Entry, ...]
    """At most one for each problem and target."""
    withdrawn: tuple[str, ...]
    """Digests of plans that must never be used again, from any bundle. Sorted."""

    def is_expired(self, now: datetime) -> bool:
        """Whether the bundle's time is over."""
        return self.expires is not None and now >= self.expires

    def to_json(self) -> bytes:
        """The manifest as the bytes that are signed; equal manifests give equal bytes."""
        return canonical_json(
            {
                "format": self.format,
                "channel": self.channel,
                "counter": self.counter,
                "created": moment_to_json(self.created),
                "expires": moment_to_json(self.expires) if self.expires else None,
                "tunefarm": self.tunefarm,
                "targets": [target.to_dict() for target in self.targets],
                "entries": [_entry_to_dict(entry) for entry in self.entries],
                "withdrawn": list(self.withdrawn),
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The manifest in these bytes.

        Raises:
            BundleRefused: it has a format of another version of tunefarm.
            BundleDamaged: these bytes are no manifest; the text names the first thing that is wrong.
        """
        try:
            payload = parse(data)
            if isinstance(payload, dict) and type(found := payload.get("format")) is int and found != FORMAT:
                raise BundleRefused(f"the bundle has format {found}; this tunefarm reads format {FORMAT}: upgrade")
            manifest = cls(**read_fields(payload, _MANIFEST))
            _check(manifest)
        except Malformed as fault:
            raise BundleDamaged(f"the bundle's manifest is malformed: {fault}") from None
        return manifest


def _check(manifest: Manifest) -> None:
    """Raises Malformed if parts of a manifest contradict each other."""
    targets = [target.key for target in manifest.targets]
    known, withdrawn = set(targets), set(manifest.withdrawn)
    served = set()
    for name, values in (("targets", targets), ("withdrawn", manifest.withdrawn)):
        if len(set(values)) != len(values):
            raise Malformed("holds one twice", name)
    if manifest.expires is not None and manifest.expires <= manifest.created:
        raise Malformed("is not after its creation", "expires")
    for place, entry in enumerate(manifest.entries):
        if entry.target not in known:
            raise Malformed("is none of the targets", "entries", str(place), "target")
        if entry.digest in withdrawn:
            raise Malformed("is withdrawn by the bundle itself", "entries", str(place), "digest")
        if (entry.problem, entry.target) in served:
            raise Malformed("is for a problem and target that another entry serves", "entries", str(place))
        served.add((entry.problem, entry.target))


def _entry_to_dict(entry: Entry) -> dict[str, Any]:
    plain = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {
        **plain,
        "problem": problem_to_json(entry.problem),
        "candidate": entry.candidate.to_dict(),
        "resolved_knobs": [list(knob) for knob in entry.resolved_knobs],
        "figures": asdict(entry.figures),
    }


def _figures(value: Any) -> Figures:
    held = read_fields(value, _FIGURES)
    return Figures(**{**held, "cache": Cache(held["cache"])})


def _entry(value: Any) -> Entry:
    return Entry(**read_fields(value, _ENTRY))


_amount = partial(integer, low=0, high=2**48)
_plan_size = partial(integer, low=1, high=MAX_PLAN_BYTES)
_number_or_null = partial(optional, read=number)

_FIGURES: Mapping[str, Any] = {
    "time_us": number,
    "low_us": number,
    "high_us": number,
    "default_us": _number_or_null,
    "torch_us": _number_or_null,
    "eager_us": _number_or_null,
    "replay_us": _number_or_null,
    "method": partial(choice_of, choices=("graph", "events", "wall")),
    "cache": partial(choice_of, choices=tuple(cache.value for cache in Cache)),
}
_ENTRY: Mapping[str, Any] = {
    "name": text,
    "problem": problem_of,
    "target": key_of,
    "candidate": candidate_of,
    "resolved_knobs": knobs_of,
    "digest": digest_of,
    "packed_digest": digest_of,
    "offset": _amount,
    "packed_bytes": _plan_size,
    "raw_bytes": _plan_size,
    "workspace_bytes": _amount,
    "zero_workspace": boolean,
    "deterministic": partial(optional, read=boolean),
    "figures": _figures,
    "trial": key_of,
    "why": text,
}
_MANIFEST: Mapping[str, Any] = {
    "format": partial(integer, low=FORMAT, high=FORMAT),
    "channel": channel_name,
    "counter": partial(integer, low=1),
    "created": moment_of,
    "expires": partial(optional, read=moment_of),
    "tunefarm": text,
    "targets": partial(items, read=target_of, limit=MAX_TARGETS),
    "entries": partial(items, read=_entry, limit=MAX_ENTRIES),
    "withdrawn": partial(items, read=digest_of, limit=MAX_WITHDRAWN),
}
