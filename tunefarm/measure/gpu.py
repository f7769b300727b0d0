"""The GPU as a measuring instrument: its clock, its L2 cache, and the ceilings that no plan can beat."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, lru_cache

import torch

_CLOCK_CYCLES = 200_000
"""Length of the spin that the SM clock is read from: 0.1 ms at full clock, so that an event's 0.5 us is little."""
_IDLE_S = 0.02
"""Idle for longer, the GPU gets untimed work first."""
_COLD_S = 1.0
"""Idle for longer, its clock is brought up again: an H200 falls from 1980 to 345 MHz."""
_WAKE_S = 0.003
_STEADY_READINGS = 5
_STEADY = 0.01
_STEADY_LIMIT_S = 1.0
_COPY_BYTES = 2**29
_MATMUL_SIZE = 8192


@lru_cache(maxsize=1)
def current_gpu(index: int) -> Gpu:
    """The process's one instrument on a device."""
    return Gpu(torch.device("cuda", index))


class Gpu:
    """One GPU, used by one process and thread. Its clock is brought to a steady state at once, and kept there.

    Clocks are not locked: what is locked is not what serves.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.l2_bytes: int = properties.L2_cache_size
        # One for all captures: cuBLAS keeps tens of megabytes for every stream that it has seen
        self.capture_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._memory_bytes: int = properties.total_memory
        self._swept = torch.ones(max(2 * self.l2_bytes // 4, 1), dtype=torch.float32, device=device)
        self._sum = torch.empty((), dtype=torch.float32, device=device)
        self._work = torch.randn(2048, 2048, device=device, generator=torch.Generator(device).manual_seed(0)).half()
        self._work_out = torch.empty_like(self._work)
        self._last_busy = 0.0
        self._mhz = self._steady_mhz()

    def delay(self, us: float) -> None:
        """Keep the stream busy for about so many microseconds, so that the host can enqueue what follows."""
        _spin(int(us * self._mhz))

    def sweep_l2(self) -> None:
        """Read twice the size of L2. Reading leaves clean lines; written ones would be charged to the next kernel."""
        torch.sum(self._swept, dim=0, out=self._sum)

    def wake(self) -> None:
        """Work for a while if the GPU was idle, so that the next block doesn't meet a low clock."""
        idle = time.perf_counter() - self._last_busy
        if idle > _COLD_S:
            self._mhz = self._steady_mhz()
        elif idle > _IDLE_S:
            self._multiply(_WAKE_S)

    def was_busy(self) -> None:
        """Told when work has just ended."""
        self._last_busy = time.perf_counter()

    @cached_property
    def bytes_per_us(self) -> float:
        """Ceiling of memory traffic: bytes read and written by the fastest of some large copies."""
        size = min(_COPY_BYTES, self._memory_bytes // 32)
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        self.wake()
        return 2 * size / min(_elapsed_us(lambda: target.copy_(source)) for _ in range(8))

    @cached_property
    def flops_per_us(self) -> float:
        """Ceiling of arithmetic: the fastest of some large float16 products; other types are at most as fast."""
        size = _MATMUL_SIZE if self._memory_bytes > 2**34 else _MATMUL_SIZE // 2
        generator = torch.Generator(self.device).manual_seed(0)
        a, b = (torch.randn(size, size, device=self.device, generator=generator).half() for _ in range(2))
        out = torch.empty_like(a)
        self.wake()
        return 2 * size**3 / min(_elapsed_us(lambda: torch.mm(a, b, out=out)) for _ in range(8))

    def _steady_mhz(self) -> float:
        """Work until the SM clock, read in band, is steady. Returns it, in cycles of a microsecond."""
        limit = time.perf_counter() + _STEADY_LIMIT_S
        readings: list[float] = []
        while time.perf_counter() < limit:
            self._multiply(_WAKE_S)
            readings.append(_CLOCK_CYCLES / _elapsed_us(lambda: _spin(_CLOCK_CYCLES)))
            latest = readings[-_STEADY_READINGS:]
            if len(latest) == _STEADY_READINGS and max(latest) <= min(latest) * (1 + _STEADY):
                break
        self.was_busy()
        return readings[-1]

    def _multiply(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(8):
                torch.mm(self._work, self._work, out=self._work_out)
            torch.cuda.synchronize()
        self.was_busy()


def _spin(cycles: int) -> None:
    """Keep one multiprocessor busy for so many cycles of its clock."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch's only spin kernel


def _elapsed_us(work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3
