"""`tunefarm verify`."""

from pathlib import Path

import click

from tunefarm.cli.bundle_options import (
    FILE,
    about,
    allow_unsigned_option,
    manifest_payload,
    now,
    open_bundle,
    trust_option,
)
from tunefarm.cli.options import json_option
from tunefarm.cli.output import note, print_json
from tunefarm.model.errors import BundleRefused


@click.command()
@click.argument("path", metavar="BUNDLE", type=FILE)
@trust_option
@allow_unsigned_option
@json_option
def verify(path: Path, trust: tuple[Path, ...], *, allow_unsigned: bool, as_json: bool) -> None:
    """Check all of a bundle: signature, manifest, every plan's bytes, expiry."""
    with open_bundle(path, trust, allow_unsigned=allow_unsigned) as bundle:
        bundle.check_plans()
        manifest = bundle.manifest
        if manifest.is_expired(now()):
            raise BundleRefused(f"{path} expired at {manifest.expires:%Y-%m-%d %H:%M} UTC; ship a new one")
        if as_json:
            print_json({"version": 1, "signed_by": bundle.signed_by, **manifest_payload(manifest)})
        else:
            print(about(manifest))
    note(f"signed by key {bundle.signed_by[:12]}" if bundle.signed_by else "not signed")
