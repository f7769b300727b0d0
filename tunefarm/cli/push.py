"""`tunefarm push`."""

from pathlib import Path

import click

from tunefarm.cli.bundle_options import FILE, about, allow_unsigned_option, open_bundle, trust_option
from tunefarm.cli.output import note


@click.command()
@click.argument("path", metavar="BUNDLE", type=FILE)
@click.argument("place", metavar="PLACE")
@trust_option
@allow_unsigned_option
def push(path: Path, place: str, trust: tuple[Path, ...], *, allow_unsigned: bool) -> None:
    """Copy a bundle to PLACE, from where machines pull it: a path, or a URI such as s3://bucket/prod.bundle.

    All of it is checked first. Credentials for object stores come from their usual variables and files.
    """
    from tunefarm.model.places import public
    from tunefarm.ship.transport import put

    with open_bundle(path, trust, allow_unsigned=allow_unsigned) as bundle:
        bundle.check_plans()
        put(path, place)
        note(f"pushed {about(bundle.manifest)}")
    print(public(place))
