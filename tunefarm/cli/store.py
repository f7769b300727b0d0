"""`tunefarm store`: what keeps a store small, whole and together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from tunefarm.cli.options import STORE, warn_of_damage
from tunefarm.cli.output import note
from tunefarm.report.figures import printable

if TYPE_CHECKING:
    from tunefarm.store import Store

_store = click.argument("place", metavar="STORE", type=STORE)
_grace = click.option(
    "--grace",
    "grace_hours",
    type=click.FloatRange(0, 1e4),
    default=1.0,
    show_default=True,
    metavar="HOURS",
    help="How long replaced files stay for those who are reading them.",
)


@click.group()
def store() -> None:
    """Keep a store small, whole and together: compact, merge, prune, check.

    Sweeps and readers may go on beside each of them, and each may be killed and run again.
    """


@store.command("compact")
@_store
@_grace
def _compact(place: str, grace_hours: float) -> int:
    """Put many small files together into few. No row and no view changes."""
    opened = _opened(place)
    for done in opened.compact(grace=timedelta(hours=grace_hours)):
        note(f"{done.table}: {done.before} parts are {done.after} now, {done.removed} replaced files removed")
    return warn_of_damage(opened)


@store.command("merge")
@_store
@click.argument("sources", metavar="FROM...", type=STORE, nargs=-1, required=True)
def _merge(place: str, sources: Sequence[str]) -> int:
    """Copy every row of other stores into STORE, which is made if there is none. Again, it copies what is new."""
    from tunefarm.store import Store

    into = Store.open(place, create=True)
    codes = []
    for source in sources:
        opened = _opened(source)
        rows = into.merge(opened)
        note(f"{source}: " + ", ".join(f"{count} rows of {table}" for table, count in rows.items()))
        codes.append(warn_of_damage(opened))
    return max(*codes, warn_of_damage(into))


@store.command("prune")
@_store
@click.option(
    "--older-than", "days", type=click.FloatRange(0, 1e5), required=True, metavar="DAYS", help="Only what is older."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be dropped.")
@_grace
def _prune(place: str, days: float, dry_run: bool, grace_hours: float) -> int:
    """Drop superseded trials, the timed blocks of losers, and plans that no trial names.

    The latest row of each trial stays, so every winner does, and its plan.
    """
    opened = _opened(place)
    before = datetime.now(UTC) - timedelta(days=days)
    gone = opened.prune(before, grace=timedelta(hours=grace_hours), dry_run=dry_run)
    verb = "would drop" if dry_run else "dropped"
    note(f"{verb} {gone.superseded} superseded trials, the blocks of {gone.blocks} losers, {gone.plans} plans")
    return 0


@store.command("check")
@_store
@click.option("--set-aside", is_flag=True, help="Move damaged files into the store's folder `damaged`.")
def _check(place: str, set_aside: bool) -> int:
    """Read every file through and compare it with its digest. Exits with 4 if one is damaged."""
    damaged = _opened(place).check(set_aside=set_aside)
    for damage in damaged:
        note(f"damaged: {printable(str(damage))}")
    if not damaged:
        note("every file is as it was published")
    elif set_aside:
        note(f"{len(damaged)} files are in the folder damaged now; run the sweep again to re-measure what they held")
    return 4 if damaged else 0


def _opened(place: str) -> Store:
    from tunefarm.store import Store

    return Store.open(place)
