"""A sweep from the start of its workers to their end."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tunefarm.farm.bulletin import Bulletin
from tunefarm.farm.executor import Executor
from tunefarm.farm.inline import InlineExecutor
from tunefarm.farm.interrupt import Interrupt, InterruptedStartError
from tunefarm.farm.journal import StartJournal
from tunefarm.farm.loop import SweepLoop
from tunefarm.farm.metrics import RayMetrics
from tunefarm.farm.phases import PhaseShares
from tunefarm.farm.progress import Progress
from tunefarm.farm.ray_executor import RayExecutor
from tunefarm.farm.roster import Roster, WorkerState
from tunefarm.farm.status import Ended
from tunefarm.farm.tally import Tally
from tunefarm.model.errors import TunefarmError
from tunefarm.model.job import Job
from tunefarm.model.target import Target
from tunefarm.model.trial import Status
from tunefarm.store import Store


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep is to run."""

    executor: str = "ray"
    """`ray`, or `inline` for one device without Ray."""
    address: str | None = None
    """Address of a running Ray cluster; None starts Ray on this machine."""
    builders: int | None = None
    """Compiling workers; None for every core that measuring workers don't need."""
    deadline_s: float | None = None
    """Bound on any one step of a candidate: a build, a load, a verification, a timed block. None: generous defaults."""
    retry: tuple[Status, ...] = ()
    """Candidates whose stored trial ended so are tried again."""
    journal: Path | None = None
    """Folder on a local disk where starts are written down; None: work that kills the driver is met for ever."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did."""

    sweep: str
    interrupted: int | None
    """Number of the signal that ended it early, if one did."""
    targets: tuple[Target, ...]
    problems: int
    already_done: int
    """Problems that needed no work: the store had them."""
    trials_written: int
    phases: tuple[PhaseShares, ...] = ()
    """How the time was spent, for each target that had work."""
    workers: tuple[WorkerState, ...] = ()
    """What each measuring worker did with its time."""


def run_sweep(
    job: Job, store: Store, options: SweepOptions, progress: Progress, executor: Executor | None = None
) -> SweepResult:
    """Find the fastest right plan of every task of a job, on every target that the farm has.

    What the store has already is not done again. Everything learnt is appended as it comes.

    Args:
        job: what is to be tuned.
        store: where to keep it.
        options: how to go about it.
        progress: who is told.
        executor: where workers live; None for the one that the options name. It is closed at the end.

    Raises:
        FarmError: the farm can't be brought up, or a worker is lost again and again.
        StoreError: results can't be written.
    """
    if executor is None:
        executor = (
            InlineExecutor(options.deadline_s)
            if options.executor == "inline"
            else RayExecutor(options.address, options.deadline_s)
        )
    sweep = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    roster = Roster()
    bulletin = Bulletin(store, sweep, job.name, roster)
    watchers: list[Progress] = [progress, bulletin]
    if isinstance(executor, RayExecutor):
        watchers.append(RayMetrics(job.name, roster))
    tally = Tally(sweep, job.name, watchers)
    ended, reason = Ended.FAILED, ""
    with Interrupt() as interrupt:
        try:
            bulletin.open()
            tally.phase("starting workers")
            measurers = executor.start(interrupt.check)
            with ExitStack() as stack:
                journal = stack.enter_context(closing(StartJournal(options.journal))) if options.journal else None
                loop = SweepLoop(
                    sweep,
                    job,
                    store,
                    executor=executor,
                    builders=options.builders,
                    retry=options.retry,
                    tally=tally,
                    roster=roster,
                    interrupt=interrupt,
                    journal=journal,
                )
                loop.run(measurers)
            interrupted = interrupt.signal
            ended = Ended.FINISHED if interrupted is None else Ended.INTERRUPTED
        except (InterruptedStartError, KeyboardInterrupt) as error:
            ended = Ended.INTERRUPTED
            if isinstance(error, KeyboardInterrupt):
                raise
            return SweepResult("", interrupt.signal, (), 0, 0, 0)
        except TunefarmError as error:
            reason = str(error)
            raise
        finally:
            tally.ended(ended, reason)
            bulletin.close(ended)
            executor.close()
    return SweepResult(
        sweep=sweep,
        interrupted=interrupted,
        targets=loop.targets,
        problems=len(job.tasks) * len(loop.targets),
        already_done=loop.already_done,
        trials_written=loop.trials_written,
        phases=loop.phases,
        workers=roster.workers,
    )
