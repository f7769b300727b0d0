"""`tunefarm pull`."""

from pathlib import Path

import click

from tunefarm.cli.bundle_options import about, allow_unsigned_option, now, trust_option
from tunefarm.cli.output import note
from tunefarm.model.errors import UsageError


@click.command()
@click.argument("place", metavar="[PLACE]", required=False)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    required=True,
    help="Folder of this machine's bundles; plan books open DIR/current.",
)
@trust_option
@allow_unsigned_option
@click.option("--rollback", is_flag=True, help="Make the bundle before the current one the current one again.")
def pull(place: str | None, folder: Path, trust: tuple[Path, ...], *, allow_unsigned: bool, rollback: bool) -> None:
    """Fetch a bundle from PLACE, a path or URI, check all of it, and only then make it the current one.

    Refused are bundles that no trusted key signed, that have expired, that are older than what was here, or that hold
    a withdrawn plan; the current one then stays. Running it again is harmless.
    """
    from tunefarm.ship.installed import Installed

    if rollback == (place is not None):
        raise UsageError("give a PLACE to pull from, or --rollback")
    if not trust and not allow_unsigned:
        raise UsageError("nobody to trust: give --trust FILE, the public key that bundles must be signed by")
    installed = Installed(folder)
    if place is None:
        pulled = installed.roll_back(trust or None, allow_unsigned=allow_unsigned)
    else:
        pulled = installed.pull(place, trust or None, now(), allow_unsigned=allow_unsigned)
    note(f"{'now current' if pulled.is_new else 'already current'}: {about(pulled.manifest)}")
    print(pulled.path)
