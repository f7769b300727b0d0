"""What each thread of a plan book has to itself: routes, loaded plans, an engine, and a page of the ledger."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Literal

import torch

from tunefarm.engines.cudnn import CudnnExecutable
from tunefarm.engines.engine import Engine
from tunefarm.model.problem import Problem
from tunefarm.runtime.calls import Call, Request, Unserved
from tunefarm.runtime.chain import Chain, Decision
from tunefarm.runtime.launching import LoadedPlan
from tunefarm.runtime.ledger import Cause, Ledger, Step, Tally
from tunefarm.runtime.lookup import Hit
from tunefarm.runtime.routes import Operands, Route, plan_route, torch_route, variant_route

OnMiss = Literal["torch", "build"]
"""What a call does that no shipped plan serves: see `PlanBook.open`."""

MAX_ROUTES = 16_384
"""Routes of one thread. A server of endless shapes starts afresh then; plans stay loaded."""
MAX_WARNINGS = 10_000

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_log = logging.getLogger("tunefarm.runtime")


class Routes(dict[Hashable, Route]):
    """One thread's routes, by all that was looked at when they were made."""

    __slots__ = ("__weakref__",)


class Shared:
    """What the threads of one book share."""

    def __init__(self, chain: Chain, ledger: Ledger, make_engine: Callable[[], Engine], on_miss: OnMiss) -> None:
        self.chain = chain
        self.ledger = ledger
        self.make_engine = make_engine
        self.on_miss: OnMiss = on_miss
        self._lock = threading.Lock()
        self._tables: list[weakref.ref[Routes]] = []
        self._warned: set[Hashable] = set()

    def new_routes(self) -> Routes:
        """An empty table for a thread."""
        routes = Routes()
        with self._lock:
            self._tables = [*(table for table in self._tables if table() is not None), weakref.ref(routes)]
        return routes

    def forget_routes(self) -> None:
        """Have every thread choose its routes anew, since what serves a problem has changed."""
        with self._lock:
            for table in self._tables:
                if (routes := table()) is not None:
                    routes.clear()

    def warn_once(self, about: Hashable, message: str, *arguments: object) -> None:
        """Log a warning, the first time that it is about this."""
        with self._lock:
            if about in self._warned or len(self._warned) >= MAX_WARNINGS:
                return
            self._warned.add(about)
        _log.warning(message, *arguments)


class Desk(threading.local):
    """The calling thread's part of a book. Python runs `__init__` again in each thread that comes by."""

    def __init__(self, shared: Shared) -> None:
        self.routes = shared.new_routes()
        self._shared = shared
        self._page = shared.ledger.open_page()
        self._plans: dict[tuple[str, torch.device], tuple[Decision, LoadedPlan]] = {}
        self._engine: Engine | None = None

    def make_route(self, key: Hashable, call: Call, tensors: Operands) -> Route:
        """Choose what answers a call, and all later ones that have the same key."""
        cause = _not_for_plans(tensors)
        if cause is not None:
            return self._keep(key, torch_route(call, self._left_to_torch(call.name, cause, cause.value)))
        try:
            request = call.problem(tensors)
        except Unserved as reason:
            return self._keep(key, torch_route(call, self._left_to_torch(call.name, Cause.UNSERVED, str(reason))))
        problem, device = request.problem, tensors[0].device
        capturing = _is_capturing(device)
        if capturing and self._must_load(problem, device):
            self._shared.warn_once(
                (problem, Cause.CAPTURING),
                "%s: its plan is not loaded in this thread, and none can be while a CUDA graph is captured: torch is "
                "captured; call it once before, or warm the book",
                problem.label,
            )
            return torch_route(call, self._page.tally(problem, Step.TORCH, Cause.CAPTURING))
        decision, plan = self.decide(problem, device, build=self._shared.on_miss == "build" and not capturing)
        route = self._route_of(call, request, device, decision, plan)
        return route if capturing else self._keep(key, route)

    def decide(self, problem: Problem, device: torch.device, *, build: bool) -> tuple[Decision, LoadedPlan | None]:
        """What serves a problem in this thread, loaded."""
        held = self._plans.get((problem.key, device))
        if held is not None and self._shared.chain.decided(problem, device) is held[0]:
            return held
        before = self._shared.chain.decided(problem, device)
        decision, executable = self._shared.chain.decide(problem, device, self._engine_here, build=build)
        if before is not None and decision is not before:
            self._shared.forget_routes()
        if decision.step is not Step.SHIPPED:
            self._shared.warn_once(
                (problem, device, decision.step),
                "%s on %s: %s answers; %s",
                problem.label,
                device,
                decision.candidate.label if decision.candidate else "torch",
                "; ".join(f"{skipped.step}: {skipped.reason}" for skipped in decision.skipped),
            )
        if not isinstance(executable, CudnnExecutable):
            return decision, None
        assert decision.candidate is not None
        plan = LoadedPlan(executable, problem, device, engine_id=decision.candidate.engine_id, zeroed=decision.zeroed)
        self._plans[problem.key, device] = decision, plan
        return decision, plan

    def leave_to_torch(self, name: str, cause: Cause, reason: str) -> None:
        """Count a call that is answered by torch without a route."""
        self._left_to_torch(name, cause, reason).calls += 1

    def _left_to_torch(self, name: str, cause: Cause, reason: str) -> Tally:
        self._shared.warn_once((name, reason), "a call of %s is torch's: %s", name, reason)
        return self._page.tally(None, Step.TORCH, cause)

    def _route_of(
        self, call: Call, request: Request, device: torch.device, decision: Decision, plan: LoadedPlan | None
    ) -> Route:
        problem, candidate = request.problem, decision.candidate

        def by_torch(cause: Cause) -> Route:
            return torch_route(call, self._page.tally(problem, Step.TORCH, cause))

        def failed(error: Exception) -> None:
            reason = " ".join(str(error).split())[:240] or type(error).__name__
            self._shared.chain.fail(problem, device, reason)
            self._plans.pop((problem.key, device), None)
            self._shared.forget_routes()
            self._shared.warn_once(
                (problem, device, Step.TORCH), "%s on %s: torch answers; %s", problem.label, device, reason
            )

        tally = self._page.tally(problem, decision.step)
        if plan is not None:
            return plan_route(
                request,
                plan,
                tally,
                failed=failed,
                misaligned=by_torch(Cause.MISALIGNED),
                instead=by_torch(Cause.FAILED),
            )
        if candidate is None or candidate.engine != "torch":
            return by_torch(Cause.MISS)
        if candidate.name == "eager":
            return torch_route(call, tally)
        return variant_route(request, candidate.name, tally, failed=failed, instead=by_torch(Cause.FAILED))

    def _must_load(self, problem: Problem, device: torch.device) -> bool:
        """Whether answering by the chain's choice would load a plan."""
        if (problem.key, device) in self._plans:
            return False
        decision = self._shared.chain.decided(problem, device)
        if decision is not None:
            return decision.candidate is not None and decision.candidate.engine == "cudnn"
        found = self._shared.chain.find(problem, device)
        return isinstance(found, Hit) and found.offer.entry.candidate.engine == "cudnn"

    def _engine_here(self) -> Engine:
        if self._engine is None:
            self._engine = self._shared.make_engine()
        return self._engine

    def _keep(self, key: Hashable, route: Route) -> Route:
        if len(self.routes) >= MAX_ROUTES:
            self.routes.clear()
        self.routes[key] = route
        return route


def _not_for_plans(tensors: Operands) -> Cause | None:
    """Why torch must answer whatever the shapes."""
    if any(type(t) not in _PLAIN for t in tensors):
        return Cause.SUBCLASS
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Cause.GRADIENT
    if torch.is_autocast_enabled(tensors[0].device.type):
        return Cause.AUTOCAST
    return None


def _is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
