"""`tunefarm ship`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tunefarm.cli.options import json_option, store_option, warn_of_damage
from tunefarm.cli.output import note, print_json, print_report
from tunefarm.model.candidate import NUMERICAL_NOTES
from tunefarm.model.errors import UsageError
from tunefarm.model.job import Cache
from tunefarm.ship.policy import Choice, Objective, Policy

if TYPE_CHECKING:
    from tunefarm.model.target import Target
    from tunefarm.ship.policy import Decision
    from tunefarm.ship.selection import Selection

NOT_ALL = 3
"""Exit code where some problems have nothing that ships."""


@click.command()
@click.option("--output", type=FILE, metavar="FILE", help="The bundle to write.")
@store_option
@key_option
@unsigned_option
@click.option("--previous", type=FILE, metavar="FILE", help="The channel's latest bundle: its counter and withdrawals.")
@trust_option
@click.option(
    "--channel", metavar="NAME", help="Line of bundles that supersede each other; `default` without --previous."
)
@click.option("--counter", type=click.IntRange(min=1), metavar="N", help="By default one more than the previous one's.")
@valid_option
@click.option(
    "--cache", type=click.Choice([c.value for c in Cache]), default="cold", show_default=True, help="Which times count."
)
@click.option(
    "--objective",
    type=click.Choice([o.value for o in Objective]),
    default="graph",
    show_default=True,
    help="graph: time on the device. eager: time when the host launches one by one.",
)
@click.option(
    "--least-gain",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="What a plan must win over cuDNN's default and over torch, or they are kept.",
)
@click.option("--max-workspace", type=click.IntRange(min=0), metavar="BYTES", help="Workspace that a plan may need.")
@click.option("--deterministic-only", is_flag=True, help="Only what was seen to give equal bits for equal inputs.")
@click.option(
    "--forbid",
    multiple=True,
    type=click.Choice(NUMERICAL_NOTES),
    metavar="NOTE",
    help="No plan with this numerical note of cuDNN, such as reduced_precision_reduction. May be repeated.",
)
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="Only problems of this job. May be repeated.")
@click.option("--target", "targets", multiple=True, metavar="KEY", help="Only this target. May be repeated.")
@click.option("--dry-run", is_flag=True, help="Only tell each choice and refusal.")
@json_option
def ship(
    output: Path | None,
    store_path: str,
    *,
    key_paths: tuple[Path, ...],
    unsigned: bool,
    previous: Path | None,
    trust: tuple[Path, ...],
    channel: str | None,
    counter: int | None,
    valid_days: int | None,
    cache: str,
    objective: str,
    least_gain: float,
    max_workspace: int | None,
    deterministic_only: bool,
    forbid: tuple[str, ...],
    jobs: tuple[str, ...],
    targets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Choose a plan for each problem of the store and write them, signed, into one bundle.

    Every plan was verified from the very bytes that ship. Where cuDNN's default is not beaten by the least gain, the
    default ships; where torch won, or is not beaten by as much, the entry says so and holds no code. A problem with
    nothing that may ship is told with its reason, and ends the command with exit code 3.
    """
    from tunefarm.ship.files import publish
    from tunefarm.ship.selection import select
    from tunefarm.ship.succession import next_header
    from tunefarm.ship.write import write_bundle
    from tunefarm.store import Store

    if output is None and not dry_run:
        raise UsageError("give --output FILE, or --dry-run")
    keys = signers(key_paths, unsigned=unsigned) if key_paths or unsigned or not dry_run else []
    before = None
    if previous is not None:
        with open_own(previous, keys, trust) as bundle:
            before = bundle.manifest
    header = next_header(before, now(), channel=channel, counter=counter, valid_for=validity(valid_days))
    store = Store.open(store_path)
    policy = Policy(
        Cache(cache), Objective(objective), least_gain / 100, max_workspace, deterministic_only, frozenset(forbid)
    )
    selection = select(store, policy, jobs=jobs, targets=targets, withdrawn=header.withdrawn)
    known = store.targets()
    if output is not None and not dry_run and selection.choices:
        publish(output, [write_bundle(selection.choices, known, header, selection.plans.__getitem__, keys)])
    written = output if selection.choices and not dry_run else None
    if as_json:
        print_json(
            {
                "version": 1,
                "bundle": str(written) if written else None,
                "channel": header.channel,
                "counter": header.counter,
                "decisions": [_payload(decision) for decision in selection.decisions],
            }
        )
    else:
        _print(selection, known)
    if written:
        note(f"wrote {written}: channel {header.channel}, counter {header.counter}, {len(selection.choices)} problems")
    elif not dry_run:
        note("nothing may ship: no bundle was written")
    return warn_of_damage(store) or (NOT_ALL if selection.refusals or not selection.choices else 0)


def _payload(decision: Decision) -> dict[str, Any]:
    if isinstance(decision, Choice):
        trial, measured = decision.trial, decision.trial.outcome.measurement
        verdict, candidate = decision.trial.outcome.verdict, decision.trial.outcome.candidate
        return {
            "name": trial.name,
            "problem": trial.problem.key,
            "target": trial.target,
            "ships": candidate.label,
            "plan": trial.plan_digest,
            "time_us": measured.time_us if measured else None,
            "deterministic": verdict.deterministic if verdict else None,
            "notes": list(candidate.notes),
            "why": decision.why,
        }
    return {
        "name": decision.name,
        "problem": decision.problem.key,
        "target": decision.target,
        "ships": None,
        "plan": None,
        "time_us": None,
        "deterministic": None,
        "notes": None,
        "why": decision.why,
    }


def _print(selection: Selection, targets: dict[str, Target]) -> None:
    from tunefarm.report.rows import rows_table

    columns = ("problem", "target", "ships", "us", "why")
    rows = []
    for decision in selection.decisions:
        payload = _payload(decision)
        target = targets.get(payload["target"])
        rows.append(
            {
                "problem": payload["name"],
                "target": target.label if target else payload["target"],
                "ships": payload["ships"] or "nothing",
                "us": payload["time_us"],
                "why": payload["why"],
            }
        )
    print_report(rows_table(columns, rows))
