"""`tunefarm diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunefarm.cli.bundle_options import FILE, allow_unsigned_option, entry_payload, open_bundle, trust_option
from tunefarm.cli.options import json_option
from tunefarm.cli.output import note, print_json, print_report

if TYPE_CHECKING:
    from tunefarm.ship.diff import Change


@click.command()
@click.argument("before", metavar="BUNDLE", type=FILE)
@click.argument("after", metavar="BUNDLE", type=FILE)
@trust_option
@allow_unsigned_option
@click.option("--all", "everything", is_flag=True, help="Also what stays the same.")
@json_option
def diff(
    before: Path, after: Path, trust: tuple[Path, ...], *, allow_unsigned: bool, everything: bool, as_json: bool
) -> None:
    """What changes for whom from one bundle to another: choices added, removed, withdrawn, changed, rebuilt."""
    from tunefarm.ship.diff import Kind, diff_manifests

    with (
        open_bundle(before, trust, allow_unsigned=allow_unsigned) as old,
        open_bundle(after, trust, allow_unsigned=allow_unsigned) as new,
    ):
        changes = diff_manifests(old.manifest, new.manifest)
    shown = [change for change in changes if everything or change.kind is not Kind.SAME]
    if as_json:
        print_json({"version": 1, "changes": [_payload(change) for change in shown]})
    elif shown:
        _print(shown)
    note(f"{sum(change.kind is not Kind.SAME for change in changes)} of {len(changes)} choices differ")


def _payload(change: Change) -> dict[str, Any]:
    return {
        "change": change.kind.value,
        "target": change.target.label,
        "before": entry_payload(change.before) if change.before else None,
        "after": entry_payload(change.after) if change.after else None,
        "ratio": change.ratio,
    }


def _print(changes: list[Change]) -> None:
    from tunefarm.report.figures import ABSENT, ratio
    from tunefarm.report.rows import rows_table

    columns = ("change", "problem", "target", "before", "after", "before us", "after us", "faster")
    rows = [
        {
            "change": change.kind.value,
            "problem": change.entry.name,
            "target": change.target.label,
            "before": change.before.candidate.label if change.before else ABSENT,
            "after": change.after.candidate.label if change.after else ABSENT,
            "before us": change.before.figures.time_us if change.before else None,
            "after us": change.after.figures.time_us if change.after else None,
            "faster": ratio(change.ratio),
        }
        for change in changes
    ]
    print_report(rows_table(columns, rows))
