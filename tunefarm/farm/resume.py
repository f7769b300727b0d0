"""What a job still needs on a target: a set difference between what was proposed and what the store has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tunefarm.farm.lane import Pending
from tunefarm.model.candidate import Candidate, Proposal, refused_candidate
from tunefarm.model.job import Task
from tunefarm.model.target import Target
from tunefarm.model.trial import Outcome, Status, trial_keys
from tunefarm.store import Store

GPU_ENGINES = ("cudnn",)
"""Engines that are left out where there is no GPU: they would refuse every problem."""


def plan_lane(
    tasks: Iterable[Task], target: Target, store: Store, retry: Collection[Status]
) -> tuple[list[Pending], set[str]]:
    """Tasks that need work, and the trial keys that count as finished.

    Args:
        tasks: of the job.
        target: where they are to run.
        store: what is known already.
        retry: trials that ended so count as not made.
    """
    tasks = list(tasks)
    finished = set(store.finished(target.key))
    proposals = store.proposals(target.key)
    if retry and finished:
        stored = store.trials(problems={task.problem.key for task in tasks}, target=target.key)
        finished -= {trial.key for trial in stored if trial.outcome.status in retry}
    pending = [p for task in tasks if (p := _pending(task, target, proposals, finished)) is not None]
    if finished:
        _add_history(pending, target, store)
    return pending, finished


def _pending(
    task: Task, target: Target, proposals: Mapping[tuple[str, str, str], Proposal], finished: set[str]
) -> Pending | None:
    """What is left of a task, or None."""
    engines: list[str] = []
    candidates: list[Candidate] = []
    key_of = trial_keys(task.problem.key, target.key, task.protocol.key)

    for engine in usable_engines(task.search.engines, target):
        proposal = proposals.get((task.problem.key, task.search.key, engine))
        if proposal is not None and proposal.refusal is None:
            candidates.extend(c for c in proposal.candidates if key_of(c.key) not in finished)
        elif key_of(refused_candidate(engine).key) not in finished:
            engines.append(engine)
    return Pending(task, tuple(engines), tuple(candidates)) if engines or candidates else None


def usable_engines(names: Sequence[str], target: Target) -> tuple[str, ...]:
    """Engines of a search that a target can have at all."""
    return tuple(n for n in names if target.kind == "cuda" or n not in GPU_ENGINES)


def _add_history(pending: Sequence[Pending], target: Target, store: Store) -> None:
    """Give problems that were measured before their incumbent, and the baselines to race it against."""
    measured: dict[tuple[str, str], list[Outcome]] = {}
    # Oldest first, so that of several winners of several sweeps the latest stays the incumbent.
    for trial in store.trials(problems={p.task.problem.key for p in pending}, target=target.key):
        if trial.outcome.measurement is not None:
            measured.setdefault((trial.problem.key, trial.protocol.key), []).append(trial.outcome)
    for p in pending:
        p.remember(measured.get(p.slot, []))
