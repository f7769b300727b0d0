"""Out of the store: what ships by a policy, and the bytes of what was chosen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tunefarm.model.errors import StoreError, UsageError
from tunefarm.model.trial import Trial
from tunefarm.ship.policy import Choice, Decision, Policy, Refusal, decide
from tunefarm.store import Store


@dataclass(frozen=True)
class Selection:
    """The decisions of a policy over a store."""

    decisions: tuple[Decision, ...]
    plans: dict[str, bytes]
    """Bytes of the plans that were chosen, by digest, each checked against it."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What ships."""
        return tuple(decision for decision in self.decisions if isinstance(decision, Choice))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What doesn't, and why."""
        return tuple(decision for decision in self.decisions if isinstance(decision, Refusal))


def select(
    store: Store,
    policy: Policy,
    *,
    jobs: Collection[str] = (),
    targets: Collection[str] = (),
    withdrawn: Collection[str] = (),
) -> Selection:
    """Decide for every problem and target of a store.

    Args:
        store: of trials and plans.
        policy: what may ship.
        jobs: only problems whose trials were made under one of these names; empty: all.
        targets: only these keys; empty: all.
        withdrawn: digests of plans that must never be used again.

    Raises:
        UsageError: a job or target is not in the store.
        StoreError: the store can't be read.
    """
    trials = store.trials()
    for what, wanted, known in (
        ("job", jobs, {trial.job for trial in trials}),
        ("target", targets, {trial.target for trial in trials}),
    ):
        if unknown := sorted(set(wanted) - known):
            there = ", ".join(sorted(known)) or "none"
            raise UsageError(f"the store has no {what} {unknown[0]!r}; there are {there}")
    problems = {trial.problem.key for trial in trials if not jobs or trial.job in jobs}
    chosen = [t for t in trials if t.problem.key in problems and (not targets or t.target in targets)]
    kept = set(store.select("plans", columns=("digest",)).column("digest").to_pylist())
    plans: dict[str, bytes] = {}
    decisions = decide(chosen, policy, kept=kept, withdrawn=withdrawn)
    return Selection(tuple(_with_bytes(store, decision, plans) for decision in decisions), plans)


def _with_bytes(store: Store, decision: Decision, plans: dict[str, bytes]) -> Decision:
    """The decision, a choice having its plan's bytes in `plans`; a refusal if the store's bytes are others."""
    if isinstance(decision, Refusal):
        return decision
    trial = decision.trial
    digest = trial.plan_digest
    assert digest
    if digest not in plans:
        try:
            plans[digest] = store.plan(digest)
        except StoreError as error:
            return _refused(trial, str(error))
    return decision


def _refused(trial: Trial, why: str) -> Refusal:
    return Refusal(trial.name, trial.problem, trial.target, f"{trial.outcome.candidate.label}: {why}")
