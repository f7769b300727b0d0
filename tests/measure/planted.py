"""Candidates that do as they are told, on CPU tensors, under a clock that tells what it is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tunefarm.engines.engine import Executable, Launch
from tunefarm.measure.bench import Bench
from tunefarm.measure.contest import Contest
from tunefarm.measure.handling import Handling
from tunefarm.measure.session import Event
from tunefarm.measure.timing import CaptureError, Method, TimedBlock, Timer
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Outcome
from tunefarm.ops import operation_of

Outputs = dict[str, torch.Tensor]
Deed = Callable[["PlantedExecutable", Mapping[str, torch.Tensor], Outputs, "torch.Tensor | None"], None]


def right(executable: PlantedExecutable, inputs: Mapping[str, torch.Tensor], outputs: Outputs, _: object) -> None:
    """Writes the reference, rounded: what the best plan would."""
    for name, value in executable.answer(inputs).items():
        outputs[name].copy_(value)


@dataclass
class PlantedExecutable(Executable):
    problem: Problem
    deed: Deed
    us: float = 100.0
    workspace_bytes: int = 0
    captures: bool = True
    launches: int = 0
    _answers: dict[tuple[int, ...], Outputs] = field(default_factory=dict)

    def answer(self, inputs: Mapping[str, torch.Tensor]) -> Outputs:
        """The right outputs of some inputs."""
        key = tuple(t.data_ptr() for t in inputs.values())
        if key not in self._answers:
            reference = operation_of(self.problem).reference(self.problem, inputs)
            dtypes = {s.name: getattr(torch, s.dtype) for s in self.problem.outputs}
            self._answers[key] = {name: value.to(dtypes[name]) for name, value in reference.items()}
        return self._answers[key]

    def bind(self, inputs: Mapping[str, torch.Tensor], outputs: Outputs, workspace: torch.Tensor | None) -> Launch:
        return PlantedLaunch(self, inputs, outputs, workspace)


@dataclass
class PlantedLaunch:
    executable: PlantedExecutable
    inputs: Mapping[str, torch.Tensor]
    outputs: Outputs
    workspace: torch.Tensor | None

    def __call__(self) -> None:
        self.executable.launches += 1
        self.executable.deed(self.executable, self.inputs, self.outputs, self.workspace)


class ToldTimer(Timer):
    """Reads the time that an executable was given, with noise and drift of its own."""

    l2_bytes = 0
    rotation_bytes = 2**28
    plain: Method = "events"
    cache = Cache.COLD
    screen_samples = 1

    def __init__(self, noise: float = 0.0, seed: int = 0, *, captures: bool = False) -> None:
        self.captures = captures
        self._noise = noise
        self._rng = random.Random(seed)
        self._drift = 1.0

    def method(self, us: float) -> Method:
        return "graph" if self.captures and us < 50 else "events"

    def block(self, launches: Sequence[Launch], method: Method, *, sweep: bool) -> TimedBlock:
        executable = launches[0].executable
        if method == "graph" and not executable.captures:
            raise CaptureError("planted: it waits for the device")

        def sample() -> float:
            for launch in launches:
                launch()
            self._drift *= self._rng.gauss(1.0, self._noise)
            return executable.us * self._drift * self._rng.gauss(1.0, self._noise)

        return sample

    def synchronize(self) -> None:
        """Nothing runs beside the launches."""


@dataclass
class Planted:
    """A candidate to be: its executable is made when its plan is loaded."""

    name: str
    us: float = 100.0
    deed: Deed = right
    engine: str = "cudnn"
    proposed_by: str = "B"
    rank: int = 0
    workspace_bytes: int = 0
    captures: bool = True

    @property
    def plan(self) -> Plan:
        candidate = Candidate(self.engine, self.name, proposed_by=self.proposed_by, rank=self.rank)
        return Plan(candidate, self.name.encode(), self.workspace_bytes, 1.0)

    @property
    def key(self) -> str:
        return self.plan.candidate.key

    def load(self, problem: Problem) -> PlantedExecutable:
        return PlantedExecutable(problem, self.deed, self.us, self.workspace_bytes, self.captures)


def default(us: float = 100.0, **options: object) -> Planted:
    return Planted("default", us, proposed_by="A", **options)


def hold(
    problem: Problem,
    planted: Sequence[Planted],
    *,
    protocol: Protocol | None = None,
    timer: Timer | None = None,
    incumbent: str | None = None,
    bench: Callable[[Bench], Bench] = lambda bench: bench,
    events: list[Event] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, Outcome]:
    """Outcomes of a contest by the candidates' names."""
    protocol = protocol or Protocol()
    timer = timer or ToldTimer()
    by_name = {p.name: p for p in planted}
    plain = Bench(torch.device(device), timer, lambda problem, plan: by_name[plan.candidate.name].load(problem))
    handling = Handling(
        problem=problem,
        operation=operation_of(problem),
        protocol=protocol,
        bench=bench(plain),
        report=(events if events is not None else []).append,
        workspaces=[p.workspace_bytes for p in planted],
    )
    contest = Contest(
        plans=[p.plan for p in planted],
        handling=handling,
        timer=timer,
        max_rounds=protocol.max_rounds,
        incumbent=incumbent,
        rng=random.Random(seed),
    )
    outcomes = contest.run()
    assert [o.candidate.name for o in outcomes] == [p.name for p in planted]
    return {o.candidate.name: o for o in outcomes}
