"""Options of the verbs that make, check and move bundles, and how an entry is printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunefarm.cli.output import note
from tunefarm.model.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tunefarm.runtime.bundle import Bundle
    from tunefarm.runtime.manifest import Entry, Manifest

FILE = click.Path(dir_okay=False, path_type=Path)

trust_option = click.option(
    "--trust",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Public key, or several in one file: one of them must have signed the bundle. May be repeated.",
)
allow_unsigned_option = click.option(
    "--allow-unsigned", is_flag=True, help="Accept a bundle that nobody signed, or nobody here can check."
)
key_option = click.option(
    "--key", "key_paths", type=FILE, multiple=True, metavar="FILE", help="Private key that signs. May be repeated."
)
unsigned_option = click.option("--unsigned", is_flag=True, help="Sign with nothing, for trying out.")
valid_option = click.option(
    "--valid-days", type=click.IntRange(min=1), metavar="N", help="Days until the bundle may no longer be pulled."
)


def signers(key_paths: tuple[Path, ...], *, unsigned: bool) -> list[Ed25519PrivateKey]:
    """The keys that sign. Raises UsageError unless there is one, or unsigned was asked for by name."""
    from tunefarm.ship.keys import read_private_key

    if bool(key_paths) == unsigned:
        raise UsageError("give --key FILE to sign with (`tunefarm keygen` makes one), or else --unsigned")
    return [read_private_key(path) for path in key_paths]


def open_bundle(path: Path, trust: tuple[Path, ...], *, allow_unsigned: bool) -> Bundle:
    """A bundle that one of these keys signed. Raises as `Bundle.open`."""
    from tunefarm.runtime.bundle import Bundle

    if not trust and not allow_unsigned:
        raise UsageError(f"nobody to trust: give --trust FILE, the public key that {path} must be signed by")
    bundle = Bundle.open(path, trust or None, allow_unsigned=allow_unsigned)
    if bundle.signed_by is None:
        note(f"warning: nobody vouches for {path}: it was let in unsigned")
    return bundle


def open_own(path: Path, keys: list[Ed25519PrivateKey], trust: tuple[Path, ...]) -> Bundle:
    """The bundle to supersede: trusted if one of the signing keys signed it, or what `--trust` adds."""
    from tunefarm.runtime.bundle import Bundle

    return Bundle.open(path, [*(key.public_key() for key in keys), *trust], allow_unsigned=not keys)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def validity(days: int | None) -> timedelta | None:
    """How long a bundle may be pulled; None: for ever."""
    return timedelta(days=days) if days else None


def about(manifest: Manifest) -> str:
    """One line on a bundle."""
    expires = f", expires {manifest.expires:%Y-%m-%d}" if manifest.expires else ""
    plans = len({entry.digest for entry in manifest.entries})
    return (
        f"channel {manifest.channel}, counter {manifest.counter}, made {manifest.created:%Y-%m-%d %H:%M} UTC{expires}:"
        f" {len(manifest.entries)} problems, {plans} plans, {len(manifest.targets)} targets,"
        f" {len(manifest.withdrawn)} withdrawn"
    )


def manifest_payload(manifest: Manifest) -> dict[str, Any]:
    """A manifest for `--json`: everything but where its bytes lie."""
    return {
        "channel": manifest.channel,
        "counter": manifest.counter,
        "created": manifest.created.isoformat(),
        "expires": manifest.expires.isoformat() if manifest.expires else None,
        "targets": {target.key: target.label for target in manifest.targets},
        "entries": [entry_payload(entry) for entry in manifest.entries],
        "withdrawn": list(manifest.withdrawn),
    }


def entry_payload(entry: Entry) -> dict[str, Any]:
    """An entry for `--json`. Times in microseconds, sizes in bytes."""
    figures = entry.figures
    return {
        "name": entry.name,
        "problem": entry.problem.key,
        "label": entry.problem.label,
        "target": entry.target,
        "candidate": entry.candidate.label,
        "plan": entry.digest,
        "plan_bytes": entry.raw_bytes,
        "workspace_bytes": entry.workspace_bytes,
        "time_us": figures.time_us,
        "default_us": figures.default_us,
        "torch_us": figures.torch_us,
        "cache": figures.cache.value,
        "deterministic": entry.deterministic,
        "notes": list(entry.candidate.notes),
        "trial": entry.trial,
        "why": entry.why,
    }
