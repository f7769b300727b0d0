"""What a bundle takes over from the one before it: the channel, a higher counter, and every withdrawn plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunefarm.model.errors import UsageError
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.manifest import Manifest
from tunefarm.runtime.strict_json import Malformed
from tunefarm.runtime.words import channel_name
from tunefarm.ship.write import Header, bundle_bytes

DEFAULT_CHANNEL = "default"
_LEAST_DIGITS = 8
"""Of a digest that is named by its beginning."""


def next_header(
    previous: Manifest | None,
    now: datetime,
    *,
    channel: str | None = None,
    counter: int | None = None,
    valid_for: timedelta | None = None,
) -> Header:
    """The header of the bundle that supersedes another, or of a channel's first.

    Args:
        previous: the bundle to supersede.
        now: UTC.
        channel: None: as before, `default` for a first one.
        counter: None: one more than before, 1 for a first one.
        valid_for: until it expires; None: never.

    Raises:
        UsageError: the channel is another one than before, or no name; the counter would not go up.
    """
    name = channel or (previous.channel if previous else DEFAULT_CHANNEL)
    try:
        channel_name(name)
    except Malformed as fault:
        raise UsageError(f"{name!r} is no channel: its name {fault}") from None
    if previous and name != previous.channel:
        raise UsageError(f"the previous bundle is of channel {previous.channel}, not {name}")
    number = counter or (previous.counter + 1 if previous else 1)
    if previous and number <= previous.counter:
        raise UsageError(f"counter {number} is not above the previous bundle's {previous.counter}")
    created = now.replace(microsecond=0)
    return Header(
        channel=name,
        counter=number,
        created=created,
        expires=created + valid_for if valid_for else None,
        withdrawn=previous.withdrawn if previous else (),
    )


def withdraw(
    bundle: Bundle,
    plans: Iterable[str],
    keys: Sequence[Ed25519PrivateKey],
    now: datetime,
    valid_for: timedelta | None = None,
) -> bytes:
    """The next bundle of a channel: the same, less these plans, which no later bundle may bring back.

    Args:
        bundle: the latest of the channel.
        plans: digests of the plans, or beginnings of the digests of plans in the bundle.
        keys: who signs.
        now: UTC.
        valid_for: as for `next_header`.

    Raises:
        UsageError: a digest names no plan, or several.
        BundleDamaged: a plan that stays is not what was signed.
    """
    before = bundle.manifest
    header = next_header(before, now, valid_for=valid_for)
    withdrawn = {*before.withdrawn, *(_resolve(before, text) for text in plans)}
    manifest = replace(
        before,
        counter=header.counter,
        created=header.created,
        expires=header.expires,
        entries=tuple(entry for entry in before.entries if entry.digest not in withdrawn),
        withdrawn=tuple(sorted(withdrawn)),
    )
    used = {entry.target for entry in manifest.entries}
    manifest = replace(manifest, targets=tuple(target for target in manifest.targets if target.key in used))
    by_digest = {entry.digest: entry for entry in manifest.entries}
    return bundle_bytes(manifest, lambda digest: bundle.plan_bytes(by_digest[digest]), keys)


def _resolve(manifest: Manifest, text: str) -> str:
    wanted = text.lower()
    if re.fullmatch(r"[0-9a-f]{64}", wanted):
        return wanted
    known = {entry.digest for entry in manifest.entries}
    found = sorted(digest for digest in known if len(wanted) >= _LEAST_DIGITS and digest.startswith(wanted))
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{text!r} may be any of {len(found)} plans of the bundle; give more digits")
    raise UsageError(
        f"the bundle has no plan {text!r}; `tunefarm verify --json` lists them. A plan that it has not is withdrawn by"
        f" its whole digest, others by {_LEAST_DIGITS} digits or more"
    )
