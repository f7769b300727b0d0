"""Writes what a sweep learns: gathered for a moment, so that a part holds more than one row."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from tunefarm.farm.lane import Finished
from tunefarm.model.candidate import Plan, Proposal
from tunefarm.model.errors import StoreError, StoreUnreachable
from tunefarm.model.job import Task
from tunefarm.model.trial import Outcome, Trial
from tunefarm.store import Store, StoredPlan, StoredProposal

FLUSH_S = 1.0
FLUSH_ROWS = 5000
"""A large farm makes some thousand rows a second; a part costs three files' syncs however many it holds."""
PATIENCE_S = 300.0
"""How long rows wait in memory for a store that does not answer, before that ends the sweep."""
MOST_WAITING = 20_000
"""Trials that wait for it at most."""
RETRY_S = (1.0, 30.0)
"""The first pause between two tries, which doubles, and the longest."""
LAST_TRIES_S = (0.5, 1.0)
"""Pauses between the last tries of a sweep that ends: whoever pressed Ctrl-C waits for them."""

COMPACT_EVERY = 256
"""Parts of trials after which a sweep puts small parts together: with thousands of them every reading takes seconds."""

_log = logging.getLogger(__name__)


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
        self._away_since: float | None = None
        self._pause_s = RETRY_S[0]
        self._parts = 0
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
        """Publish if rows have waited long enough or are many. Those that can't be published for now are kept.

        Raises:
            StoreError: the store can't be written, or did not answer for `PATIENCE_S`, or too many rows wait.
        """
        now = time.monotonic()
        if self._away_since is not None:
            if now - self._flushed_at < self._pause_s:
                return
        elif now - self._flushed_at < FLUSH_S and len(self._trials) < FLUSH_ROWS:
            return
        try:
            self._publish()
        except StoreUnreachable as error:
            self._wait(error)
        if self._parts >= COMPACT_EVERY:
            self._parts = 0
            self._compact()

    def flush(self) -> None:
        """Publish all that was taken, at the end of a sweep.

        Raises:
            StoreError: the store can't be written.
        """
        for pause_s in LAST_TRIES_S:
            try:
                return self._publish()
            except StoreUnreachable as error:
                _log.warning("%s; trying again", error)
                time.sleep(pause_s)
        return self._publish()

    def _wait(self, error: StoreUnreachable) -> None:
        self._flushed_at = time.monotonic()
        if self._away_since is None:
            self._away_since = self._flushed_at
            self._pause_s = RETRY_S[0]
            _log.warning("%s; what is measured waits in memory, for %.0f s at most", error, PATIENCE_S)
        else:
            self._pause_s = min(2 * self._pause_s, RETRY_S[1])
        if self._flushed_at - self._away_since >= PATIENCE_S or len(self._trials) >= MOST_WAITING:
            raise error

    def _compact(self) -> None:
        try:
            self._store.compact()
        except StoreError as error:  # nothing is lost by it
            _log.warning("%s; the store's parts are not put together for now", error)

    def _publish(self) -> None:
        """Plans before the trials that name them: a trial's digest can be found."""
        if self._plans:
            self._store.append_plans(self._plans)
            self._plans = []
        if self._trials:
            self._store.append_trials(self._trials)
            self._parts += 1
            self.written += len(self._trials)
            self._trials = []
        if self._proposals:
            self._store.append_proposals(self._proposals)
            self._proposals = []
        self._flushed_at = time.monotonic()
        self._away_since = None

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
