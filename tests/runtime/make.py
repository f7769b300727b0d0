"""Plan books of few entries, and a stand-in for cuDNN that computes with torch what a plan would."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import torch

from tunefarm.engines.cudnn import CudnnExecutable
from tunefarm.engines.engine import Engine
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined
from tunefarm.model.job import Cache
from tunefarm.model.target import Target
from tunefarm.ops import operation_of
from tunefarm.runtime.book import PlanBook
from tunefarm.runtime.manifest import Entry, Figures, Manifest

CPU = Target("cpu", "some CPU", "", "", "", torch.__version__, "", "")
PROFILE = {"deviceVer": 900, "multiProcessorCount": 132, "memoryBusWidth": 6144, "smClockRateKHz": 1980000}
GPU = Target("cuda", "NVIDIA H200", "9.0", "9.27.0", "1.32.0", "2.11.0", "13.0", json.dumps(PROFILE))

EAGER = Candidate("torch", "eager", proposed_by="torch")
PLAN = Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),), proposed_by="A")
OTHER_PLAN = Candidate("cudnn", "eng7_k24=1", 7, (("KERNEL_CFG", 1),), proposed_by="A", rank=1)


def gpu(**properties: int) -> Target:
    """The GPU with some of its properties changed."""
    return replace(GPU, profile=json.dumps(PROFILE | properties))


def entry(problem, candidate=PLAN, target=GPU, **changes) -> Entry:
    figures = Figures(10.0, 9.9, 10.1, 12.0, 11.0, None, None, "graph", Cache.COLD)
    values = {
        "name": problem.label,
        "problem": problem,
        "target": target.key,
        "candidate": candidate,
        "resolved_knobs": candidate.knobs,
        "digest": candidate.key.ljust(64, "0"),
        "packed_digest": "0" * 64,
        "offset": 0,
        "packed_bytes": 1,
        "raw_bytes": 1,
        "workspace_bytes": 0,
        "zero_workspace": False,
        "deterministic": None,
        "figures": figures,
        "trial": "0" * 20,
        "why": "20 % faster than torch",
    }
    return Entry(**(values | changes))


def manifest(entries: Iterable[Entry], targets: Iterable[Target] = (GPU,)) -> Manifest:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    return Manifest(1, "test", 1, moment, None, "0", tuple(targets), tuple(entries), ())


@dataclass
class HeldBundle:
    """A bundle in memory: as much of one as a book asks for."""

    manifest: Manifest
    damage: Exception | None = None
    read: list[Entry] = field(default_factory=list)

    def plan_bytes(self, entry: Entry) -> bytes:
        if self.damage is not None:
            raise self.damage
        self.read.append(entry)
        return entry.digest.encode()


class StandInEngine(Engine):
    """cuDNN's engine but for its library: plans run torch's eager baseline on the operands that they are given."""

    name = "cudnn"

    def __init__(
        self,
        listed: Iterable[Candidate] = (),
        *,
        workspace_bytes: int = 0,
        refuses_load: Iterable[str] = (),
        raises: Exception | None = None,
    ) -> None:
        self.listed = tuple(listed)
        self.workspace_bytes = workspace_bytes
        self.refuses_load = frozenset(refuses_load)
        self.raises = raises
        self.loaded: list[Plan] = []
        self.built: list[Candidate] = []
        self.workspaces: list[torch.Tensor | None] = []
        self.launches = 0

    def propose(self, problem, search) -> Proposal:
        return Proposal(self.name, self.listed) if self.listed else Proposal(self.name, refusal="no engine takes it")

    def build(self, problem, candidate) -> Plan:
        self.built.append(candidate)
        return Plan(candidate, b"built", self.workspace_bytes, 1.0)

    def load(self, problem, plan) -> CudnnExecutable:
        if plan.blob.decode() in self.refuses_load:
            raise Declined("its bytes are of another library")
        self.loaded.append(plan)
        cudnn = SimpleNamespace(set_stream=lambda handle, stream: None)
        graph = SimpleNamespace(execute=self._execute(problem))
        return CudnnExecutable(cudnn, graph, object(), problem, self.workspace_bytes)

    def _execute(self, problem) -> Any:
        specs = {spec.uid: spec for spec in problem.tensors}
        run = operation_of(problem).baselines(problem)[0].run

        def execute(tensors, workspace, handle, *, tensor_uids) -> None:
            if self.raises is not None:
                raise self.raises
            self.launches += 1
            self.workspaces.append(workspace)
            given = dict(zip(tensor_uids, tensors, strict=True))
            assert given.keys() == specs.keys()
            # As a plan does: addresses alone count, seen in the problem's own shapes and strides.
            seen = {specs[uid].name: t.as_strided(specs[uid].shape, specs[uid].strides) for uid, t in given.items()}
            for name, value in run({name: seen[name] for name in (spec.name for spec in problem.inputs)}).items():
                seen[name].copy_(value)

        return execute


def book_of(
    entries: Iterable[Entry],
    machine: Target = GPU,
    engine: StandInEngine | None = None,
    targets: Iterable[Target] | None = None,
    damage: Exception | None = None,
    **options: Any,
) -> PlanBook:
    """A book on a machine that may be another than this one. Tensors stay on the CPU."""
    entries = tuple(entries)
    known = targets if targets is not None else {t.key: t for t in (GPU, CPU)}.values()
    bundle = HeldBundle(manifest(entries, known), damage)
    engine = engine or StandInEngine()
    return PlanBook(bundle, machine=lambda device: machine, engine=lambda: engine, **options)


def inputs_of(problem, seed: int = 0) -> Mapping[str, torch.Tensor]:
    return operation_of(problem).make_inputs(problem, torch.device("cpu"), seed)
