"""`tunefarm sweep`."""

from __future__ import annotations

import math
import os
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from tunefarm.cli.log_file import logged_to
from tunefarm.cli.options import DEFAULT_STORE, json_option, store_option, warn_of_damage
from tunefarm.cli.output import note, print_json, print_report
from tunefarm.cli.progress import shown_progress, span
from tunefarm.model.places import is_uri, public
from tunefarm.model.trial import Status
from tunefarm.report.figures import plural

if TYPE_CHECKING:
    from tunefarm.farm.sweep import SweepResult
    from tunefarm.model.job import Job
    from tunefarm.report.summary import ProblemSummary
    from tunefarm.store import Store

RETRIABLE = tuple(status for status in Status if status is not Status.MEASURED)


def _statuses(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[Status, ...]:
    """Parse `crashed,timed_out`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in RETRIABLE]
    if unknown:
        raise click.BadParameter(f"no status {', '.join(unknown)}; there are {', '.join(RETRIABLE)}")
    return tuple(Status(name) for name in names)


def _job_file(_context: click.Context, _parameter: click.Parameter, path: Path) -> Path:
    """See that there is a job file, or tell which was probably meant."""
    if not path.exists():
        from tunefarm.jobfile.text import similar_file

        raise click.BadParameter(f"{path}: no such file{similar_file(path)}")
    return path


def _seconds(_context: click.Context, _parameter: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no number of seconds")
    return seconds


class Terminated(KeyboardInterrupt):
    """SIGTERM came while no sweep was there to hear it."""


@click.command()
@click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path), callback=_job_file)
@store_option
@click.option(
    "--executor",
    type=click.Choice(["ray", "inline"]),
    default="ray",
    show_default=True,
    help="ray: every GPU of this machine or a cluster. inline: one device, no Ray, starts sooner.",
)
@click.option("--address", metavar="HOST:PORT", help="A running Ray cluster; without it Ray starts on this machine.")
@click.option(
    "--builders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compiling workers; by default every core that no measuring worker needs.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Refuse a job of more problems than that.",
)
@click.option(
    "--retry",
    callback=_statuses,
    default="",
    metavar="STATUS,...",
    help=f"Try stored candidates again that ended so: {', '.join(RETRIABLE)}.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    callback=_seconds,
    metavar="SECONDS",
    help="Longest that any one step of a candidate may take (build, load, verify, time); generous by default.",
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append every event to a file, as JSON lines.",
)
@click.option("--dry-run", is_flag=True, help="Only tell the problems, and what the store has of them.")
@json_option
@click.pass_obj
def sweep(
    argv: Sequence[str],
    job_path: Path,
    store_path: str,
    *,
    executor: str,
    address: str | None,
    builders: int | None,
    limit: int,
    retry: tuple[Status, ...],
    deadline: float | None,
    log_path: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Find the fastest right plan of every problem of a job.

    What the store has is not done again: the same command resumes a sweep that was interrupted.
    """
    from tunefarm.jobfile import read_job

    if address and executor == "inline":
        raise click.UsageError("--address is for --executor ray")
    try:
        with _sigterm_as_interrupt():
            job = read_job(job_path, limit=limit)
            if dry_run:
                from tunefarm.cli.dry_run import print_dry_run

                return print_dry_run(job, store_path, retry, as_json=as_json)
            from tunefarm.farm.sweep import SweepOptions, run_sweep
            from tunefarm.store import Store

            store = Store.open(store_path, create=True)
            options = SweepOptions(
                executor=executor,
                address=address,
                builders=builders,
                deadline_s=deadline,
                retry=retry,
                journal=_journal_folder(store_path),
            )
            began = time.monotonic()
            with logged_to(log_path), shown_progress() as progress:
                result = run_sweep(job, store, options, progress)
            took_s = time.monotonic() - began
            if result.interrupted is None:
                return _finish(job, store, store_path, result, took_s, as_json=as_json)
            note(f"interrupted; {result.trials_written} trials of this run are in {public(store_path)}. To resume:")
            stopped_by = result.interrupted
    except KeyboardInterrupt as error:
        note("interrupted. To resume:")
        stopped_by = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    note(shlex.join(["tunefarm", *argv]))
    return 128 + stopped_by


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Hear SIGTERM as a Ctrl-C also before and after the farm's own handling, so that the resume command is told."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _journal_folder(store: str) -> Path:
    """Where starts are written down: in the store; of one that is no folder, in the user's state on this machine."""
    if not is_uri(store):
        return Path(store) / "journal"
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "tunefarm" / "journal" / sha256(public(store).encode()).hexdigest()[:16]


def _finish(job: Job, store: Store, store_path: str, result: SweepResult, took_s: float, *, as_json: bool) -> int:
    """Print what came out, and where to look on."""
    from tunefarm.report.job import JobReport
    from tunefarm.report.summary import summarize_job

    targets = {target.key: target for target in result.targets}
    problems = {task.problem.key for task in job.tasks}
    protocols = {task.protocol.key for task in job.tasks}
    rows = [t for key in targets for t in store.trials(problems=problems, target=key, protocols=protocols)]
    summaries = summarize_job(job.tasks, targets, rows)
    if as_json:
        print_json(_payload(job, store_path, result, summaries, took_s))
    else:
        print_report(JobReport(summaries, targets))
    before = f" ({result.already_done} done before)" if result.already_done else ""
    note(
        f"{plural(result.problems, 'problem')}{before} in {span(took_s)}, "
        f"{plural(result.trials_written, 'trial')} written"
    )
    for shares in result.phases:
        if shares.compile_s + shares.measure_s:
            note(
                f"compiled for {span(shares.compile_s)}, timed for {span(shares.measure_s)}; taking turns left "
                f"{shares.lost:.0%} of that idle"
            )
    if all(target.kind == "cpu" for target in result.targets):
        note("no GPU was found: these are torch's times on this machine's CPU")
    where = "" if store_path == DEFAULT_STORE else f" --store {shlex.quote(public(store_path))}"
    note(f"store: {public(store_path)}")
    note(f"next:  tunefarm show {shlex.quote(_handle(job))}{where}")
    note(f"       tunefarm query --winners{where}")
    warn_of_damage(store)
    return 3 if any(summary.winner is None for summary in summaries) else 0


def _handle(job: Job) -> str:
    """What `show` knows one of the problems by: a name that no other shares, else a key."""
    problems: dict[str, set[str]] = {}
    for task in job.tasks:
        problems.setdefault(task.name, set()).add(task.problem.key)
    return next((name for name, keys in problems.items() if len(keys) == 1), job.tasks[0].problem.key)


def _payload(
    job: Job, store_path: str, result: SweepResult, summaries: Sequence[ProblemSummary], took_s: float
) -> dict[str, Any]:
    from tunefarm.report import payload
    from tunefarm.report.totals import add_up, kernel_cache_uses

    targets = {target.key: target for target in result.targets}
    return {
        "version": payload.VERSION,
        "sweep": result.sweep,
        "job": job.name,
        "store": public(store_path),
        "seconds": took_s,
        "trials_written": result.trials_written,
        "already_done": result.already_done,
        "targets": payload.targets_payload(targets),
        "problems": [payload.summary_payload(summary) for summary in summaries],
        "totals": payload.totals_payload(add_up(summaries)),
        "kernel_cache": [payload.kernel_cache_payload(use) for use in kernel_cache_uses(summaries)],
    }
