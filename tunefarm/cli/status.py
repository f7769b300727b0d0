"""`tunefarm status`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunefarm.cli.options import json_option, store_option
from tunefarm.cli.output import note, print_json, print_report
from tunefarm.cli.progress import span
from tunefarm.model.trial import Status
from tunefarm.report.figures import plural, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tunefarm.farm.progress import SweepState
    from tunefarm.farm.status import SweepStatus
    from tunefarm.store import Store

WATCH_EVERY_S = 2.0


@click.command()
@store_option
@click.option("--watch", is_flag=True, help="Look again every two seconds, until no sweep runs.")
@json_option
def status(store_path: Path, *, watch: bool, as_json: bool) -> int:
    """Tell what the sweeps of a store do, from any terminal or machine that sees the store.

    Only reads. Sweeps tell about once a second; one that told nothing for a minute is called silent, and one whose
    driver ran on this host and is gone is called dead: the same sweep command resumes either.
    """
    from tunefarm.store import Store

    store = Store.open(store_path)
    if not watch:
        return _show(_read(store), store_path, as_json=as_json)
    try:
        while True:
            found = _read(store)
            code = _show(found, store_path, as_json=as_json)
            if not any(_is_running(sweep) for sweep in found[0]):
                return code
            time.sleep(WATCH_EVERY_S)
            if not as_json:
                print()
    except KeyboardInterrupt:
        return 0


Found = tuple[list["SweepStatus"], list[tuple[str, str]]]
"""Statuses, newest first; and (sweep, why) of records that are none."""


def _read(store: Store) -> Found:
    from tunefarm.farm.status import read_status

    statuses: list[SweepStatus] = []
    faults: list[tuple[str, str]] = []
    for sweep, record in store.statuses.all().items():
        try:
            statuses.append(read_status(record))
        except ValueError as error:
            faults.append((sweep, str(error)))
    return sorted(statuses, key=lambda s: s.begun_at, reverse=True), faults


def _is_running(sweep: SweepStatus) -> bool:
    return sweep.liveness().value in ("running", "silent")


def _show(found: Found, store_path: Path, *, as_json: bool) -> int:
    statuses, faults = found
    if as_json:
        print_json({"version": 1, "sweeps": [_payload(sweep) for sweep in statuses]})
    elif statuses:
        print_report(_report(statuses))
    else:
        note(f"no sweep has told of itself in {store_path}")
    for sweep, why in faults:
        note(f"warning: the record of sweep {sweep} can't be read ({why}); a later sweep removes it")
    return 4 if faults else 0


def _payload(sweep: SweepStatus) -> dict[str, Any]:
    state = sweep.state
    return {
        "sweep": sweep.sweep,
        "job": sweep.job,
        "is": sweep.liveness().value,
        "heard_s_ago": sweep.age_s(),
        "begun_at": sweep.begun_at.isoformat(),
        "host": sweep.driver.host,
        "pid": sweep.driver.pid,
        "phase": state.phase,
        "elapsed_s": state.elapsed_s,
        "eta_s": state.eta_s,
        "problems": {"total": state.problems_total, "done": state.problems_done},
        "candidates": {"proposed": state.candidates_proposed, "built": state.built},
        "trials": {stage.value: {s.value: n for s, n in counts.items()} for stage, counts in state.ended.items()},
        "trials_per_s": state.trials_per_s,
        "best": list(state.best),
        "workers": [{**vars(worker), "busy": worker.busy} for worker in sweep.workers],
    }


def _report(statuses: Sequence[SweepStatus]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for place, sweep in enumerate(statuses):
        if place:
            parts.append(Text())
        parts.extend(map(Text, _lines(sweep)))
        if _is_running(sweep) and sweep.workers:
            parts.append(_workers(sweep))
    return Group(*parts)


def _lines(sweep: SweepStatus) -> Iterable[str]:
    state = sweep.state
    yield printable(f"{sweep.sweep}  {sweep.job}: {_liveness(sweep)}")
    if not state.problems_total:
        if _is_running(sweep):
            yield printable(f"  {state.phase} for {span(state.elapsed_s)}")
        return
    left = f", {span(state.eta_s)} left" if state.eta_s is not None and _is_running(sweep) else ""
    yield (
        f"  {state.problems_done}/{state.problems_total} problems, {plural(state.trials, 'trial')} in "
        f"{span(state.elapsed_s)} ({state.trials_per_s:.3g}/s){left}"
    )
    if _is_running(sweep):
        yield printable(f"  {state.phase}: {state.built} of {state.candidates_proposed} candidates built")
    if failures := list(_failures(state)):
        yield f"  not measured: {', '.join(failures)}"
    for winner in state.best if _is_running(sweep) else ():
        yield printable(f"  {winner}")


def _liveness(sweep: SweepStatus) -> str:
    driver = f"process {sweep.driver.pid} on {sweep.driver.host}"
    heard = span(sweep.age_s())
    return {
        "running": f"running, {driver}",
        "silent": f"silent for {heard}: its driver ({driver}) is dead, or can't write the store",
        "dead": f"dead: {driver} is gone, last heard {heard} ago; the same sweep command resumes it",
        "finished": f"finished {heard} ago",
        "interrupted": f"interrupted {heard} ago; the same sweep command resumes it",
        "failed": f"failed {heard} ago; the same sweep command resumes it",
    }[sweep.liveness().value]


def _failures(state: SweepState) -> Iterable[str]:
    for stage, counts in state.ended.items():
        for how, count in counts.items():
            if how is not Status.MEASURED:
                yield f"{count} {how.value} at {stage.value}"


def _workers(sweep: SweepStatus) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("worker", "now", "problems", "timing", "verifying", "loading", "waiting", "lost", "last measured"):
        table.add_column(heading, justify="left" if heading in ("worker", "now", "last measured") else "right")
    for worker in sweep.workers:
        seconds = (worker.timing_s, worker.verifying_s, worker.loading_s, worker.waiting_s)
        total = sum(seconds)
        doing = f"{worker.problem} for {span(worker.since_s)}" if worker.problem else f"waits {span(worker.since_s)}"
        cells = [worker.worker, doing, str(worker.problems)]
        cells += [f"{part / total:.0%}" if total else "-" for part in seconds]
        cells += [str(worker.losses), worker.last]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
