"""The fallback chain: shipped plan, plan rebuilt from engine and knobs, cuDNN's heuristic, torch.

What serves a problem on a device is decided once for all threads; each thread loads the plan for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from tunefarm.engines.engine import Engine, Executable
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.errors import BundleDamaged, Declined, UsageError
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.ledger import Step
from tunefarm.runtime.lookup import Found, Hit, Miss, Offer, find, nearness, offers_of, same_machine_code
from tunefarm.runtime.machine import made_current

MAX_BUILDS = 3
"""Plans that are tried on one step before the next step is. Each may take seconds to build."""
NOT_BUILDING = "calls build nothing (on_miss='torch'); warm(build=True) does"

MakeEngine = Callable[[], Engine]
"""Gives the calling thread's engine. Raises Declined where there can be none."""


@dataclass(frozen=True)
class Skipped:
    """A step of the chain that does not serve, and why."""

    step: Step
    reason: str


@dataclass(frozen=True)
class Decision:
    """What serves a problem on a device."""

    step: Step
    found: Found
    skipped: tuple[Skipped, ...] = ()
    candidate: Candidate | None = None
    """What runs; None where torch is the last resort."""
    zeroed: bool = True
    """Whether the plan's workspace is zeroed before its first launch."""
    built: Plan | None = None
    """The plan that was built here."""
    final: bool = True
    """Whether building would change nothing."""


class Chain:
    """Decides what serves each problem, and keeps what it decided."""

    def __init__(self, bundle: Bundle, machine: Callable[[torch.device], Target]) -> None:
        self._bundle = bundle
        self._machine = machine
        self._offers = offers_of(bundle.manifest)
        self._lock = threading.Lock()
        self._decisions: dict[tuple[str, torch.device], Decision] = {}

    def find(self, problem: Problem, device: torch.device) -> Found:
        """What the bundle has for a problem on a device. Loads nothing."""
        try:
            machine = self._machine(device)
        except Declined as refusal:
            return Miss(machine=str(refusal))
        return find(self._offers, problem, machine)

    def problems(self) -> tuple[Problem, ...]:
        """Every problem that the bundle has an entry for, in its order."""
        return tuple(offers[0].entry.problem for offers in self._offers.values())

    def decided(self, problem: Problem, device: torch.device) -> Decision | None:
        """What serves a problem, if that was decided."""
        return self._decisions.get((problem.key, device))

    def decide(
        self, problem: Problem, device: torch.device, engine: MakeEngine, *, build: bool
    ) -> tuple[Decision, Executable | None]:
        """What serves a problem; if it is a plan of cuDNN, loaded for this thread.

        One thread at a time loads or builds: both hold the interpreter anyway.

        Args:
            problem: what is to be served.
            device: where.
            engine: the thread's engine for plans.
            build: whether plans may be built, which takes seconds.
        """
        with self._lock, made_current(device):
            decision = self.decided(problem, device)
            if decision is not None and (decision.final or not build):
                return self._load_again(problem, decision, engine)
            decision, executable = self._decide(problem, device, engine, build=build)
            if self._offers.get(problem.key) or build:
                self._decisions[problem.key, device] = decision  # else there is nothing to keep, of endless shapes
            return decision, executable

    def fail(self, problem: Problem, device: torch.device, reason: str) -> Decision:
        """Serve a problem by torch from now on, since its plan failed when it was launched."""
        with self._lock:
            before = self._decisions[problem.key, device]
            if before.step is Step.TORCH:  # another thread said so
                return before
            after = Decision(Step.TORCH, before.found, (*before.skipped, Skipped(before.step, reason)))
            self._decisions[problem.key, device] = after
            return after

    def _load_again(
        self, problem: Problem, decision: Decision, engine: MakeEngine
    ) -> tuple[Decision, Executable | None]:
        """Load for another thread what was decided."""
        try:
            if decision.built is not None:
                return decision, engine().load(problem, decision.built)
            if isinstance(decision.found, Hit) and decision.step is Step.SHIPPED:
                return decision, self._load_shipped(problem, decision.found.offer, engine)
        except (Declined, BundleDamaged, UsageError) as refusal:
            return Decision(Step.TORCH, decision.found, (Skipped(decision.step, str(refusal)),)), None
        return decision, None

    def _decide(
        self, problem: Problem, device: torch.device, engine: MakeEngine, *, build: bool
    ) -> tuple[Decision, Executable | None]:
        found = self.find(problem, device)
        skipped: list[Skipped] = []
        if isinstance(found, Hit):
            entry = found.offer.entry
            try:
                executable = self._load_shipped(problem, found.offer, engine)
            except (Declined, BundleDamaged, UsageError) as refusal:
                skipped.append(Skipped(Step.SHIPPED, str(refusal)))
            else:
                return Decision(Step.SHIPPED, found, candidate=entry.candidate, zeroed=entry.zero_workspace), executable
        else:
            skipped.append(Skipped(Step.SHIPPED, found.reason))
        if not self._builds_on(device):
            return Decision(Step.TORCH, found, tuple(skipped)), None
        for step, candidates in ((Step.REBUILT, self._shipped_candidates), (Step.HEURISTIC, _heuristic_candidates)):
            if not build:
                skipped.append(Skipped(step, NOT_BUILDING))
                continue
            try:
                plan, executable = _build_first(problem, candidates(problem, device, engine()), engine())
            except Declined as refusal:
                skipped.append(Skipped(step, str(refusal)))
            else:
                return Decision(step, found, tuple(skipped), plan.candidate, built=plan), executable
        return Decision(Step.TORCH, found, tuple(skipped), final=build), None

    def _load_shipped(self, problem: Problem, offer: Offer, engine: MakeEngine) -> Executable | None:
        """The offered plan from the bundle's verified bytes; None where torch was fastest, which loads nothing."""
        entry = offer.entry
        if entry.candidate.engine != "cudnn":
            return None
        blob = self._bundle.plan_bytes(entry)
        plan = Plan(entry.candidate, blob, entry.workspace_bytes, build_ms=0.0, knobs=entry.resolved_knobs)
        return engine().load(problem, plan)

    def _builds_on(self, device: torch.device) -> bool:
        try:
            return self._machine(device).kind == "cuda"
        except Declined:
            return False

    def _shipped_candidates(self, problem: Problem, device: torch.device, engine: Engine) -> tuple[Candidate, ...]:
        """What the bundle's plans for a problem were built from, nearest target first.

        Engine and knobs of another library or device name code that nobody verified here, and such code can be wrong or
        hang. So they are taken only where cuDNN's own heuristics list them too.

        Raises:
            Declined: there is none.
        """
        machine = self._machine(device)
        offers = [offer for offer in self._offers.get(problem.key, ()) if offer.entry.candidate.engine == "cudnn"]
        if not offers:
            raise Declined("the bundle names no engine and knobs for this problem")
        offers.sort(key=lambda offer: nearness(offer.target, machine), reverse=True)
        listed: frozenset[Candidate] | None = None
        taken: dict[Candidate, None] = {}
        for offer in offers:
            candidate = offer.entry.candidate
            if same_machine_code(offer, machine) and candidate.replayable:
                taken[candidate] = None
                continue
            if listed is None:
                listed = frozenset(engine.propose(problem, Search(dynamic=True)).candidates)
            if candidate in listed:
                taken[candidate] = None
        if not taken:
            labels = ", ".join(dict.fromkeys(offer.entry.candidate.label for offer in offers))
            raise Declined(f"{labels} was verified on another cuDNN or device only, and cuDNN does not list it here")
        return tuple(taken)


def _heuristic_candidates(problem: Problem, _device: torch.device, engine: Engine) -> tuple[Candidate, ...]:
    """What cuDNN's heuristics list, first choice first. Raises Declined if that is nothing."""
    proposal = engine.propose(problem, Search())
    if proposal.refusal is not None:
        raise Declined(proposal.refusal)
    return proposal.candidates


def _build_first(problem: Problem, candidates: Iterable[Candidate], engine: Engine) -> tuple[Plan, Executable]:
    """The first of some candidates that can be built and loaded. Raises Declined, with all reasons, if none can."""
    reasons = []
    for candidate in list(candidates)[:MAX_BUILDS]:
        try:
            plan = engine.build(problem, candidate)
            return plan, engine.load(problem, plan)
        except Declined as refusal:
            reasons.append(f"{candidate.label}: {refusal}")
    raise Declined("; ".join(reasons) or "there is no candidate")
