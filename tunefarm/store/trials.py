"""Trials in the store: every row is kept, and the latest of each key is the current one."""

import logging
from collections.abc import Collection, Iterable
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tunefarm.model.problem import Problem
from tunefarm.model.trial import Trial
from tunefarm.store.folder import Folder
from tunefarm.store.plain_json import load_object
from tunefarm.store.rows import STRANGE, ProblemFromDict, Row, trial_of, trial_row
from tunefarm.store.schema import PLACE_ORDER, TRIALS
from tunefarm.store.tables import Table, dated

_log = logging.getLogger(__name__)


class Trials:
    """The table of trials."""

    def __init__(self, folder: Folder, problem_from_dict: ProblemFromDict) -> None:
        self.table = Table(folder, "trials", TRIALS, cluster=("problem", "target", "trial_key"))
        self._problem_from_dict = problem_from_dict

    def append(self, trials: Iterable[Trial]) -> None:
        """Publish trials as one part. Raises StoreError."""
        self.table.append([trial_row(trial) for trial in trials])

    def finished(self, target: str) -> set[str]:
        """Keys of a target's trials, however they ended. Raises StoreError."""
        return set(self.table.read(["trial_key"], pc.field("target") == target).column("trial_key").to_pylist())

    def current(
        self, problems: Collection[str] | None, target: str | None, protocols: Collection[str] | None
    ) -> list[Trial]:
        """The latest trial of each key, oldest first; None lets everything through.

        Rows in a newer version's words (their key is not that of what they seem to describe) are no current trials.

        Raises:
            StoreError: the store can't be read.
        """
        stored = self.table.read(TRIALS.names, _where(problems, target, protocols))
        sound = dated(stored, "finished_at")
        rows = _latest(sound)
        known: dict[str, Problem] = {}
        trials = [trial for row in rows.to_pylist() if (trial := self._rebuilt(row, known)) is not None]
        undated = len(stored) - len(sound)
        if strange := undated + len(rows) - len(trials):
            total = undated + len(rows)
            _log.warning("%d of %d stored trials are in another version's words: left out", strange, total)
        return trials

    def names(self) -> list[tuple[str, str, str]]:
        """Each (problem's key, name in a job, label) that occurs, sorted. Raises StoreError."""
        columns = ["problem", "name", "label"]
        found = self.table.read(columns).drop_null().group_by(columns).aggregate([])
        return sorted((row["problem"], row["name"], row["label"]) for row in found.to_pylist())

    def _rebuilt(self, row: Row, known: dict[str, Problem]) -> Trial | None:
        """The trial of a row, or None if its words mean nothing here, or something else. `known`: problems by key."""
        try:
            problem = known.get(row["problem"])
            if problem is None:
                problem = self._problem_from_dict(row["op"], load_object(row["problem_json"]))
                known[problem.key] = problem
            return trial_of(row, problem)
        except STRANGE:
            return None


def _where(
    problems: Collection[str] | None, target: str | None, protocols: Collection[str] | None
) -> ds.Expression | None:
    conditions = [
        pc.field(column).isin(pa.array(wanted, pa.string()))
        for column, wanted in (
            ("problem", None if problems is None else list(problems)),
            ("target", None if target is None else [target]),
            ("protocol", None if protocols is None else list(protocols)),
        )
        if wanted is not None
    ]
    return reduce(and_, conditions) if conditions else None


def _latest(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by([("finished_at", "ascending"), *PLACE_ORDER])
    last = {key: number for number, key in enumerate(rows.column("trial_key").to_pylist())}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))
