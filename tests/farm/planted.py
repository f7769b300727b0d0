"""An engine whose candidates go wrong in every way, at every stage, on CPU tensors. For the real farm and session."""

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import ClassVar

import torch

from tunefarm.engines.engine import Engine, Executable, Launch
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of

NAME = f"{__name__}:PlantedEngine"
DEADLY = {stage: f"{__name__}:Deadly{stage.title()}Engine" for stage in ("build", "run")}
FEW = f"{__name__}:FewDeedsEngine"
FEW_DEEDS = ("right", "slow", "build-segfault", "build-decline", "load-raise", "run-segfault", "run-wrong")

RIGHT = ("right", "slow")
DEEDS = (
    *RIGHT,
    *(f"{stage}-{deed}" for stage in ("build", "load", "run") for deed in ("segfault", "exit", "hang", "raise")),
    "build-decline",
    "load-decline",
    "run-wrong",
)


def do(deed: str, stage: str) -> None:
    where, _, what = deed.partition("-")
    if where != stage:
        return
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)
    if what == "regicide":
        os.kill(int(os.environ["PLANTED_DRIVER"]), signal.SIGKILL)
        time.sleep(60)
    if what == "exit":
        os._exit(0)
    if what == "hang":
        time.sleep(600)
    if what == "ruin":  # a fault that shows when another candidate is in hand
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSEGV)).start()
    if what == "linger":
        time.sleep(1.0)
    if what == "raise":
        raise RuntimeError(f"planted in {stage}")
    if what == "decline":
        raise Declined(f"planted refusal in {stage}")


class PlantedExecutable(Executable):
    workspace_bytes = 0

    def __init__(self, problem: Problem, deed: str) -> None:
        self._run = operation_of(problem).baselines(problem)[0].run
        self._deed = deed

    def bind(
        self, inputs: Mapping[str, torch.Tensor], outputs: dict[str, torch.Tensor], workspace: torch.Tensor | None
    ) -> Launch:
        def launch() -> None:
            do(self._deed, "run")
            for name, value in self._run(inputs).items():
                outputs[name].copy_(value)
            if self._deed == "slow":
                time.sleep(0.02)
            if self._deed == "run-wrong":
                next(iter(outputs.values())).view(-1)[0] += 100

        return launch


class PlantedEngine(Engine):
    name = NAME

    deeds: ClassVar[tuple[str, ...]] = DEEDS

    def propose(self, problem: Problem, search: Search) -> Proposal:
        candidates = (Candidate(self.name, deed, proposed_by="planted", rank=i) for i, deed in enumerate(self.deeds))
        return Proposal(self.name, tuple(candidates))

    def build(self, problem: Problem, candidate: Candidate) -> Plan:
        do(candidate.name, "build")
        return Plan(candidate, json.dumps({"deed": candidate.name}).encode(), 0, 1.0)

    def load(self, problem: Problem, plan: Plan) -> Executable:
        do(plan.candidate.name, "load")
        return PlantedExecutable(problem, plan.candidate.name)


class FewDeedsEngine(PlantedEngine):
    """One candidate of each kind, none that hangs: for sweeps of many problems."""

    name = FEW
    deeds = FEW_DEEDS


class DeadlyBuildEngine(PlantedEngine):
    """One of its candidates kills the driver while it is built."""

    name = DEADLY["build"]
    deeds = ("right", "build-regicide", "slow")


class DeadlyRunEngine(PlantedEngine):
    """One of its candidates kills the driver while it runs."""

    name = DEADLY["run"]
    deeds = ("right", "run-regicide", "slow")
