"""Writes what a sweep learns: gathered for a moment, so that a part holds more than one row."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from tunefarm.farm.lane import Finished
from tunefarm.model.candidate import Plan, Proposal
from tunefarm.model.job import Task
from tunefarm.model.trial import Outcome, Trial
from tunefarm.store import Store, StoredPlan, StoredProposal

FLUSH_S = 1.0
FLUSH_ROWS = 5000
"""A large farm makes some thousand rows a second; a part costs three files' syncs however many it holds."""


class Recorder:
    """Rows on their way to the store.

    Rows that were handed over together are published together: after a kill the store has all of a problem's
    measurements or none of them.
    """

    def __init__(self, store: Store, sweep: str, job: str) -> None:
        """Write into a store, in the name of a sweep and a job."""
        self._store = store
        self._sweep = sweep
        self._job = job
        self._trials: list[Trial] = []
        self._plans: list[StoredPlan] = []
        self._proposals: list[StoredProposal] = []
        self._flushed_at = time.monotonic()
        self.written = 0
        """Trials published so far."""

    def trials(self, finished: Finished, target: str, worker: str) -> tuple[Trial, ...]:
        """Take the rows of a finished call; returns them as trials."""
        rows = tuple(self._trial(finished, outcome, target, worker) for outcome in finished.outcomes)
        self._trials.extend(rows)
        return rows

    def plans(self, task: Task, target: str, plans: Iterable[Plan]) -> None:
        """Take plans whose bytes are worth keeping."""
        self._plans.extend(StoredPlan(plan, task.problem.key, target) for plan in plans)

    def proposals(self, task: Task, target: str, proposals: Iterable[Proposal]) -> None:
        """Take what engines proposed, so that they need not be asked again."""
        self._proposals.extend(
            StoredProposal(task.problem.key, target, task.search.key, proposal) for proposal in proposals
        )

    def flush_if_due(self) -> None:
        """Publish if rows have waited long enough or are many."""
        if time.monotonic() - self._flushed_at >= FLUSH_S or len(self._trials) >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Publish all that was taken. Plans before the trials that name them: a trial's digest can be found.

        Raises:
            StoreError: the store can't be written.
        """
        if self._plans:
            self._store.append_plans(self._plans)
            self._plans = []
        if self._trials:
            self._store.append_trials(self._trials)
            self.written += len(self._trials)
            self._trials = []
        if self._proposals:
            self._store.append_proposals(self._proposals)
            self._proposals = []
        self._flushed_at = time.monotonic()

    def _trial(self, finished: Finished, outcome: Outcome, target: str, worker: str) -> Trial:
        facts = finished.facts.get(outcome.candidate.key)
        return Trial(
            sweep=self._sweep,
            job=self._job,
            name=finished.task.name,
            problem=finished.task.problem,
            target=target,
            protocol=finished.task.protocol,
            outcome=outcome,
            finished_at=datetime.now(UTC),
            worker=worker,
            plan_digest=facts.digest if facts else None,
            plan_bytes=facts.size if facts else None,
            workspace_bytes=facts.workspace_bytes if facts else None,
            build_ms=facts.build_ms if facts else None,
            resolved_knobs=facts.knobs if facts else (),
        )
