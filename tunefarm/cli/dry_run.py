"""What `tunefarm sweep --dry-run` tells. Starts no worker and imports no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tunefarm.cli.options import warn_of_damage
from tunefarm.cli.output import note, print_json, print_report
from tunefarm.model.places import public
from tunefarm.report.figures import plural

if TYPE_CHECKING:
    from tunefarm.model.job import Job
    from tunefarm.model.target import Target
    from tunefarm.model.trial import Status
    from tunefarm.store import Store


def print_dry_run(job: Job, store_path: str, retry: Sequence[Status], *, as_json: bool) -> int:
    """Print a job's problems, and for each target that the store knows what is left of them."""
    from tunefarm.report.payload import VERSION, targets_payload
    from tunefarm.report.rows import rows_table
    from tunefarm.store import Store

    store = Store.open(store_path) if Store.is_there(store_path) else None
    targets = store.targets() if store else {}
    left = {key: _left(job, target, store, retry) for key, target in targets.items()} if store else {}
    problems = [
        {
            "name": task.name,
            "problem": task.problem.key,
            "label": task.problem.label,
            "cache": task.protocol.cache.value,
        }
        for task in job.tasks
    ]
    if as_json:
        print_json(
            {
                "version": VERSION,
                "job": job.name,
                "store": public(store_path),
                "duplicates": job.duplicates,
                "targets": targets_payload(targets),
                "problems": [
                    {**problem, "left": {key: states[place] for key, states in left.items()}}
                    for place, problem in enumerate(problems)
                ],
            }
        )
    else:
        headings = {key: _heading(key, targets) for key in left}
        rows = [
            {**problem, **{headings[key]: states[place] for key, states in left.items()}}
            for place, problem in enumerate(problems)
        ]
        print_report(rows_table(["name", "problem", "label", "cache", *headings.values()], rows))
    dropped = f" ({plural(job.duplicates, 'duplicate')} dropped)" if job.duplicates else ""
    note(f"{plural(len(job.tasks), 'problem')}{dropped}; engines tell their candidates when the sweep runs")
    if not left:
        note(f"{public(store_path)} has nothing of them yet")
    return warn_of_damage(store) if store else 0


def _heading(key: str, targets: Mapping[str, Target]) -> str:
    label = targets[key].label
    is_unique = sum(target.label == label for target in targets.values()) == 1
    return label if is_unique else f"{label} ({key})"


def _left(job: Job, target: Target, store: Store, retry: Sequence[Status]) -> list[str]:
    """What is left of each task on a target."""
    from tunefarm.farm.resume import plan_lane

    pending, _ = plan_lane(job.tasks, target, store, retry)
    by_task = {id(p.task): p for p in pending}
    states = []
    for task in job.tasks:
        p = by_task.get(id(task))
        if p is None:
            states.append("done")
        elif p.engines:
            states.append(f"to ask {' and '.join(p.engines)}")
        else:
            states.append(f"{plural(len(p.candidates), 'candidate')} left")
    return states
