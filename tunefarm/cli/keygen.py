"""`tunefarm keygen`."""

from pathlib import Path

import click

from tunefarm.cli.bundle_options import FILE
from tunefarm.cli.output import note


@click.command()
@click.argument("path", metavar="FILE", type=FILE)
def keygen(path: Path) -> None:
    """Make a key pair: FILE signs bundles and stays secret, FILE.pub is what inference processes trust."""
    from tunefarm.ship.keys import generate_key

    public = path.with_name(f"{path.name}.pub")
    identity = generate_key(path, public)
    note(f"key {identity[:12]}: keep {path} secret, give {public} to whoever loads bundles")
    print(public)
