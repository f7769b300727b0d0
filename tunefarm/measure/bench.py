"""What a session works with on this machine: device, timer, engines, and the device's ceilings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from tunefarm.engines import make_engine
from tunefarm.engines.engine import Engine, Executable
from tunefarm.measure.ceilings import Ceilings
from tunefarm.measure.timing import CpuTimer, CudaTimer, Timer
from tunefarm.model.candidate import Plan
from tunefarm.model.job import Cache
from tunefarm.model.problem import Problem

_CPU_FLOPS = 1e9
_GPU_FLOPS = 1e12
"""Far below what devices do: for deadlines, which only a hang may pass."""


@dataclass(frozen=True)
class Bench:
    """One device, ready to measure on."""

    device: torch.device
    timer: Timer
    load: Callable[[Problem, Plan], Executable]
    ceilings: Ceilings | None = None
    """None where nothing is impossible: a CPU's caches and clocks have no ceiling worth a name."""

    def patience_s(self, problem: Problem) -> float:
        """Seconds within which even a poor kernel has run the problem once, and float64 arithmetic too."""
        return problem.flops / (_GPU_FLOPS if self.device.type == "cuda" else _CPU_FLOPS)

    def is_lost(self) -> bool:
        """Whether the device answers no more: after an illegal access only a new process gets it back."""
        if self.device.type != "cuda":
            return False
        for _ in range(2):  # an error that a launch left behind may be told to whoever asks next, once
            try:
                torch.zeros(1, device=self.device).add_(1).item()
                torch.cuda.synchronize(self.device)
            except RuntimeError:
                continue
            return False
        return True


def bench_here(wanted: Cache) -> Bench:
    """The bench of this process's current device; the CPU where there is no GPU.

    Its first call on a GPU takes about a tenth of a second to bring up the clock and to measure the ceilings.
    """

    def load(problem: Problem, plan: Plan) -> Executable:
        return _engine(plan.candidate.engine).load(problem, plan)

    if not torch.cuda.is_available():
        return Bench(torch.device("cpu"), CpuTimer(wanted), load)
    from tunefarm.measure.gpu import current_gpu

    gpu = current_gpu(torch.cuda.current_device())
    ceilings = Ceilings(gpu.bytes_per_us, gpu.flops_per_us, gpu.l2_bytes)
    return Bench(gpu.device, CudaTimer(gpu, wanted), load, ceilings)


@cache
def _engine(name: str) -> Engine:
    """The process's one engine of that name: it keeps its handle."""
    return make_engine(name)
