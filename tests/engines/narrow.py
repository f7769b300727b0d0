"""Engines that propose, and fail when they are asked for more."""

import os
import signal

from tunefarm.engines.engine import Engine, Executable
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem


class NarrowEngine(Engine):
    name = f"{__name__}:NarrowEngine"

    def propose(self, problem: Problem, search: Search) -> Proposal:
        return Proposal(self.name, (Candidate(self.name, "listed"),))

    def widen(self, problem: Problem, search: Search) -> tuple[Candidate, ...]:
        raise Declined("no ranges")

    def build(self, problem: Problem, candidate: Candidate) -> Plan:
        raise Declined("not this one")

    def load(self, problem: Problem, plan: Plan) -> Executable:
        raise Declined("not this one")


class DyingEngine(NarrowEngine):
    name = f"{__name__}:DyingEngine"

    def widen(self, problem: Problem, search: Search) -> tuple[Candidate, ...]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ()
