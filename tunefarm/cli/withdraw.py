"""`tunefarm withdraw`."""

from pathlib import Path

import click

from tunefarm.cli.bundle_options import (
    FILE,
    key_option,
    now,
    open_own,
    signers,
    trust_option,
    unsigned_option,
    valid_option,
    validity,
)
from tunefarm.cli.output import note


@click.command()
@click.argument("path", metavar="BUNDLE", type=FILE)
@click.argument("plans", metavar="DIGEST...", nargs=-1, required=True)
@click.option("--output", type=FILE, required=True, metavar="FILE", help="The bundle to write.")
@key_option
@unsigned_option
@trust_option
@valid_option
def withdraw(
    path: Path,
    plans: tuple[str, ...],
    output: Path,
    *,
    key_paths: tuple[Path, ...],
    unsigned: bool,
    trust: tuple[Path, ...],
    valid_days: int | None,
) -> None:
    """Write the next bundle of a channel without plans that proved bad in the field.

    DIGEST names a plan, as `verify --json` lists them; its beginning will do. BUNDLE is the channel's latest. What is
    withdrawn stays so: `ship --previous` hands it on, and `pull` refuses bundles that bring it back.
    """
    from tunefarm.ship.files import publish
    from tunefarm.ship.succession import withdraw as without

    keys = signers(key_paths, unsigned=unsigned)
    with open_own(path, keys, trust) as bundle:
        publish(output, [without(bundle, plans, keys, now(), validity(valid_days))])
        counter = bundle.manifest.counter + 1
    note(f"wrote {output}: counter {counter}; push it, and machines that pull it stop using the plan")
    print(output)
