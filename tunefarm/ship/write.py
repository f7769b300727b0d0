"""Choices into a bundle's bytes: equal choices, plans, header and keys give equal bytes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunefarm import __version__
from tunefarm.model.errors import UsageError
from tunefarm.model.target import Target
from tunefarm.model.trial import Trial
from tunefarm.runtime.bundle import LENGTH_BYTES, MAGIC
from tunefarm.runtime.envelope import MAX_ENVELOPE, MAX_SIGNATURES, seal
from tunefarm.runtime.manifest import FORMAT, Entry, Figures, Manifest
from tunefarm.ship.policy import Choice

PlanOf = Callable[[str], bytes]
"""The bytes of the plan that has a digest."""

_MAX_TEXT = 512
"""Characters of a text in a manifest."""


@dataclass(frozen=True)
class Header:
    """What a bundle says of itself. Times are UTC, whole seconds."""

    channel: str
    counter: int
    created: datetime
    expires: datetime | None = None
    withdrawn: tuple[str, ...] = ()


def write_bundle(
    choices: Iterable[Choice],
    targets: Mapping[str, Target],
    header: Header,
    plan_of: PlanOf,
    keys: Sequence[Ed25519PrivateKey],
) -> bytes:
    """The bundle of these choices.

    Args:
        choices: one for each problem and target, in any order.
        targets: by key; those that no choice needs are left out.
        header: channel, counter, times, withdrawn plans.
        plan_of: bytes of the choices' plans.
        keys: who signs, 8 at most; none for an unsigned bundle.

    Raises:
        UsageError: a target is unknown, or the bundle would be larger than a reader takes.
    """
    entries = [_entry(choice) for choice in choices]
    used = sorted({entry.target for entry in entries})
    if unknown := [key for key in used if key not in targets]:
        raise UsageError(f"nothing is known of target {unknown[0]}: its file is missing in the store's meta/targets")
    manifest = Manifest(
        format=FORMAT,
        channel=header.channel,
        counter=header.counter,
        created=header.created,
        expires=header.expires,
        tunefarm=__version__,
        targets=tuple(targets[key] for key in used),
        entries=tuple(entries),
        withdrawn=tuple(sorted(set(header.withdrawn))),
    )
    return bundle_bytes(manifest, plan_of, keys)


def bundle_bytes(manifest: Manifest, plan_of: PlanOf, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    """The bundle of a manifest, whose entries are put in order and given their places.

    Raises:
        UsageError: the manifest breaks a bound of the format, or there are too many keys.
    """
    if len(keys) > MAX_SIGNATURES:
        raise UsageError(f"{len(keys)} keys are too many; a bundle has {MAX_SIGNATURES} signatures at most")
    packed: dict[str, bytes] = {}
    entries, end = [], 0
    places: dict[str, Entry] = {}
    for entry in sorted(manifest.entries, key=lambda entry: (entry.problem.key, entry.target)):
        if entry.digest not in places:
            raw = plan_of(entry.digest)
            data = packed[entry.digest] = zlib.compress(raw, 9)
            places[entry.digest] = replace(
                entry,
                packed_digest=hashlib.sha256(data).hexdigest(),
                offset=end,
                packed_bytes=len(data),
                raw_bytes=len(raw),
            )
            end += len(data)
        place = places[entry.digest]
        entries.append(
            replace(
                entry,
                packed_digest=place.packed_digest,
                offset=place.offset,
                packed_bytes=place.packed_bytes,
                raw_bytes=place.raw_bytes,
            )
        )
    payload = replace(manifest, entries=tuple(entries)).to_json()
    Manifest.from_json(payload)  # what a reader would refuse is never signed
    envelope = seal(payload, keys)
    if len(envelope) > MAX_ENVELOPE:
        raise UsageError(f"the manifest is too large ({len(envelope)} bytes); ship fewer problems or targets a bundle")
    return b"".join([MAGIC, len(envelope).to_bytes(LENGTH_BYTES, "big"), envelope, *packed.values()])


def _entry(choice: Choice) -> Entry:
    """The entry of a choice, without its place."""
    trial = choice.trial
    measured, verdict = trial.outcome.measurement, trial.outcome.verdict
    assert measured
    assert verdict
    assert trial.plan_digest
    assert trial.workspace_bytes is not None
    return Entry(
        name=trial.name[:_MAX_TEXT],
        problem=trial.problem,
        target=trial.target,
        candidate=trial.outcome.candidate,
        resolved_knobs=trial.resolved_knobs,
        digest=trial.plan_digest,
        packed_digest="",
        offset=0,
        packed_bytes=0,
        raw_bytes=0,
        workspace_bytes=trial.workspace_bytes,
        # Verification launches with garbage in the workspace: a plan that relies on zeros is wrong, and never measured.
        zero_workspace=False,
        deterministic=verdict.deterministic,
        figures=Figures(
            time_us=measured.time_us,
            low_us=measured.low_us,
            high_us=measured.high_us,
            default_us=_time_us(choice.default),
            torch_us=_time_us(choice.torch),
            eager_us=measured.eager_us,
            replay_us=measured.replay_us,
            method=measured.method,
            cache=trial.protocol.cache,
        ),
        trial=trial.key,
        why=choice.why[:_MAX_TEXT],
    )


def _time_us(trial: Trial | None) -> float | None:
    return trial.outcome.measurement.time_us if trial and trial.outcome.measurement else None
