"""The store: every trial, plan and proposal of a farm, as Parquet files in one folder."""

import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa

from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import StoreError
from tunefarm.model.target import Target
from tunefarm.model.trial import Trial
from tunefarm.ops import problem_from_dict
from tunefarm.store.compaction import GRACE, Compacted, compact, remove_replaced
from tunefarm.store.folder import Folder
from tunefarm.store.layout import folder_at, open_folder
from tunefarm.store.merging import merge_table
from tunefarm.store.naming import find_problem
from tunefarm.store.parts import Damage
from tunefarm.store.plans import Plans, StoredPlan
from tunefarm.store.proposals import Proposals, StoredProposal
from tunefarm.store.retention import LOSERS_BLOCKS, SUPERSEDED, UNNAMED_PLANS, Pruned, drop_blocks, drop_rows, places
from tunefarm.store.rows import ProblemFromDict
from tunefarm.store.schema import VIEWS
from tunefarm.store.sql import FailedRunning, Filter, run_query, select_query, tables_of
from tunefarm.store.statuses import Statuses
from tunefarm.store.targets import Targets
from tunefarm.store.trials import Trials


class Store:
    """A store. Processes may append to it side by side; whoever reads sees what was published whole.

    A damaged file never hides the rest: it is left out of results, and named in `damage`.
    Every method raises StoreError if the folder can't be listed, or, of those that write, written.
    """

    def __init__(self, folder: Folder, problem_from_dict: ProblemFromDict) -> None:
        self._folder = folder
        self._trials = Trials(folder, problem_from_dict)
        self._plans = Plans(folder)
        self._proposals = Proposals(folder)
        self._targets = Targets(folder)
        self.statuses = Statuses(folder)
        """What running sweeps tell of themselves."""
        self._tables = {
            "all_trials": self._trials.table,
            "all_proposals": self._proposals.table,
            "plans": self._plans.table,
        }

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str],
        *,
        create: bool = False,
        problem_from_dict: ProblemFromDict = problem_from_dict,
    ) -> Self:
        """Open the store in a folder, or in an object store.

        Args:
            place: a path, or a URI such as `s3://bucket/path`.
            create: make the store if there is none, and see that it can be written: what a sweep needs.
            problem_from_dict: makes an operation's problem from its fields.

        Raises:
            StoreError: no store, one of a newer format, or one that can't be read or (with `create`) written.
        """
        return cls(open_folder(place, create=create), problem_from_dict)

    @staticmethod
    def is_there(place: str | os.PathLike[str]) -> bool:
        """Whether something is at a place, a store or not. Raises StoreError if the place is none."""
        return folder_at(place).is_there()

    def append_trials(self, trials: Sequence[Trial]) -> None:
        """Publish trials together: a reader sees all of them or none. So with plans and proposals."""
        self._trials.append(trials)

    def append_plans(self, plans: Sequence[StoredPlan]) -> None:
        """Publish plans."""
        self._plans.append(plans)

    def append_proposals(self, proposals: Sequence[StoredProposal]) -> None:
        """Publish proposals."""
        self._proposals.append(proposals)

    def put_target(self, target: Target) -> None:
        """Keep a target's facts, so that its key can be given a name."""
        self._targets.put(target)

    def targets(self) -> dict[str, Target]:
        """Every target, by key."""
        return self._targets.all()

    def finished(self, target: str) -> set[str]:
        """Keys of the trials made on a target, however they ended."""
        return self._trials.finished(target)

    def proposals(self, target: str) -> dict[tuple[str, str, str], Proposal]:
        """The latest proposals for a target, by (problem's key, search's key, engine)."""
        return self._proposals.latest(target)

    def trials(
        self,
        *,
        problems: Collection[str] | None = None,
        target: str | None = None,
        protocols: Collection[str] | None = None,
    ) -> list[Trial]:
        """The current trial of each key, oldest first, of these keys of problems, target and protocols (None: all)."""
        return self._trials.current(problems, target, protocols)

    def plan(self, digest: str) -> bytes:
        """The bytes of a plan, checked against the digest. Raises StoreError if there are none."""
        return self._plans.find(digest)

    def sql(self, query: str) -> pa.Table:
        """What one SELECT gives over the views of `schema.VIEWS`. Raises UsageError for any other statement."""
        return self._query(query, ())

    def select(
        self,
        view: str,
        filters: Sequence[Filter] = (),
        columns: Sequence[str] = (),
        order: Sequence[str] = (),
        limit: int | None = None,
    ) -> pa.Table:
        """A plain selection: see `sql.select_query`. Raises UsageError."""
        return self._query(*select_query(view, filters, columns, order, limit))

    def resolve_problem(self, text: str) -> str:
        """The key of the one problem that has this key, name or label, or whose key begins so.

        Raises:
            UsageError: none or several have. Several are listed.
        """
        return find_problem(text, self._trials.names())

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Every damaged file that the readings so far came across."""
        return (*(damage for table in self._tables.values() for damage in table.damage), *self._targets.damage)

    def compact(self, *, grace: timedelta = GRACE) -> list[Compacted]:
        """Put small parts of every table together: see `compaction.compact`."""
        return [compact(table, grace=grace) for table in self._tables.values()]

    def merge(self, source: Self) -> dict[str, int]:
        """Take every row and target of another store that this one has not; returns how many rows, by table."""
        for target in source.targets().values():
            self.put_target(target)
        return {table.name: merge_table(source._tables[view], table) for view, table in self._tables.items()}

    def prune(self, before: datetime, *, grace: timedelta = GRACE, dry_run: bool = False) -> Pruned:
        """Drop what is older and nobody needs (see `retention`); with `dry_run`, only count it.

        Raises:
            StoreError: the store is damaged: what a damaged part names must not be taken for unneeded.
        """
        text = before.astimezone(UTC).isoformat()
        found = [places(self.sql(query.format(before=text))) for query in (SUPERSEDED, LOSERS_BLOCKS, UNNAMED_PLANS)]
        if self.damage:
            raise StoreError(f"{self.damage[0]}; nothing is dropped from a damaged store: check and mend it first")
        superseded, blocks, plans = found
        if not dry_run:
            drop_rows(self._trials.table, superseded)
            drop_blocks(self._trials.table, blocks)
            drop_rows(self._plans.table, plans)
            for table in self._tables.values():
                remove_replaced(table, grace)
        return Pruned(*(sum(map(len, rows.values())) for rows in found))

    def check(self, *, set_aside: bool = False) -> tuple[Damage, ...]:
        """Read every file through, also those that are read no more; returns the damaged ones.

        Args:
            set_aside: move them into the folder `damaged`, where no reader looks.
        """
        self.targets()
        damage = (*(found for table in self._tables.values() for found in table.parts.audit()), *self._targets.damage)
        if set_aside:
            for found in damage:
                self._folder.set_aside(found.name)
        return damage

    def _query(self, query: str, parameters: Sequence[object]) -> pa.Table:
        needed = tables_of(query)
        try:
            return run_query(query, self._datasets(needed), parameters)
        except FailedRunning:
            changed = [self._tables[name].recheck() for name in needed]
            if not any(changed):
                raise
        return run_query(query, self._datasets(needed), parameters)

    def _datasets(self, names: Collection[str]) -> dict[str, Any]:
        tables = {name: self._tables[name] for name in names}
        datasets = {name: t.steadily(t.dataset).replace_schema(VIEWS[name]) for name, t in tables.items()}
        return {**datasets, "targets": self._targets.table()}
