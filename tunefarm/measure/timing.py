"""Timing blocks of launches: on a GPU between events, on a CPU by the wall clock.

One sample is a block of n launches. Launches under 50 us are timed as one CUDA graph of n unrolled launches, since one
launch from Python costs the host 12 to 16 us, and a graph of one launch is charged with its own start. A race never
mixes methods.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tunefarm.model.job import Cache

if TYPE_CHECKING:
    import torch

    from tunefarm.engines.engine import Launch
    from tunefarm.measure.gpu import Gpu

Method = Literal["graph", "events", "wall"]
TimedBlock = Callable[[], float]
"""Takes one sample: runs the block, returns microseconds of one launch."""

GRAPH_BELOW_US = 50.0
ROTATION_BYTES = 4 * 2**30
CPU_ROTATION_BYTES = 2**29
_GRAPH_DELAY_US = 30.0
_LAUNCH_DELAY_US = 16.0
_EVENTS_DELAY_US = 50.0
_MAX_DELAY_US = 1000.0


class CaptureError(Exception):
    """A launch can't be recorded into a CUDA graph."""


@dataclass(frozen=True)
class Rotation:
    """How the launches of a block go over copies of the tensors."""

    launches: int
    sets: int
    """Launch i uses set i modulo this."""
    sweep: bool
    """Whether L2 is swept before each block."""


def rotate(launches: int, set_bytes: int, l2_bytes: int, memory_bytes: int, cache: Cache) -> Rotation:
    """How many launches a block has, over how many sets of tensors.

    Args:
        launches: wanted in a block.
        set_bytes: of one copy of all tensors.
        l2_bytes: of the device's L2 cache; 0 where it is not swept.
        memory_bytes: that all copies may take.
        cache: the state of L2 that launches are to meet. Cold: as many sets as launches; two where a set so large
            evicts itself, or where more don't fit (then the block has two launches, and needs the sweep).
    """
    if cache is Cache.HOT:
        return Rotation(launches, 1, sweep=False)
    if l2_bytes and set_bytes >= 3 * l2_bytes:
        return Rotation(launches, min(launches, 2), sweep=False)
    if launches * set_bytes > memory_bytes:
        launches = min(launches, 2)
    return Rotation(launches, launches, sweep=l2_bytes > 0)


class Timer(ABC):
    """Takes samples on one device, for one problem."""

    cache: Cache
    l2_bytes: int
    """Of a cache that is swept before cold blocks; 0 if none is."""
    rotation_bytes: int
    """Memory that copies of a problem's tensors may take."""
    plain: Method
    """How launches are timed that are not in a graph."""
    captures: bool
    """Whether launches can be captured into a graph at all."""
    screen_samples: int
    """How many samples the screen needs to have one without a disturbance, which only ever adds time."""

    @abstractmethod
    def method(self, us: float) -> Method:
        """How candidates are timed whose fastest takes so many microseconds a launch."""

    @abstractmethod
    def block(self, launches: Sequence[Launch], method: Method, *, sweep: bool) -> TimedBlock:
        """Make a block ready to be timed, any number of times.

        Raises:
            CaptureError: the method is `graph`, and a launch can't be captured.
        """

    def eager(self, launches: Sequence[Launch], count: int) -> float:
        """Microseconds of one launch when the host issues so many back to back and waits for the last."""
        self.synchronize()
        began = time.perf_counter_ns()
        for i in range(count):
            launches[i % len(launches)]()
        self.synchronize()
        return (time.perf_counter_ns() - began) / 1e3 / count

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work of the device. Raises what the work raised."""


class CpuTimer(Timer):
    """The wall clock, for launches that return when they are done.

    Cold means that the launches of a block go over copies of the tensors. Caches are not swept: a CPU's last level is
    shared with whoever else runs. Each block begins with an untimed launch: torch's threads may be asleep, and on a
    busy machine it takes milliseconds until they run again. The screen goes by the least of three blocks.
    """

    l2_bytes = 0
    rotation_bytes = CPU_ROTATION_BYTES
    plain = "wall"
    captures = False
    screen_samples = 3

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def method(self, us: float) -> Method:  # noqa: ARG002 - one method for all
        return "wall"

    def block(self, launches: Sequence[Launch], method: Method, *, sweep: bool) -> TimedBlock:  # noqa: ARG002 - one method, and nothing to sweep
        def sample() -> float:
            launches[-1]()
            began = time.perf_counter_ns()
            for launch in launches:
                launch()
            return (time.perf_counter_ns() - began) / 1e3 / len(launches)

        return sample

    def synchronize(self) -> None:
        """A launch that returned is done."""


class CudaTimer(Timer):
    """Event pairs on torch's current stream. A delay kernel goes before each, so that the host is ahead."""

    rotation_bytes = ROTATION_BYTES
    plain = "events"
    captures = True
    screen_samples = 1

    def __init__(self, gpu: Gpu, cache: Cache) -> None:
        self.cache = cache
        self.l2_bytes = gpu.l2_bytes
        self._gpu = gpu

    def method(self, us: float) -> Method:
        return "graph" if us < GRAPH_BELOW_US else "events"

    def block(self, launches: Sequence[Launch], method: Method, *, sweep: bool) -> TimedBlock:
        def launch_all() -> None:
            for launch in launches:
                launch()

        warm: Callable[[], None] = launches[0]
        work, delay_us = launch_all, len(launches) * _LAUNCH_DELAY_US + _EVENTS_DELAY_US
        if method == "graph":
            graph = _captured(launches, self._gpu.capture_stream)
            graph.replay()  # the first replay carries the graph to the device
            warm = work = graph.replay
            delay_us = _GRAPH_DELAY_US

        def sample() -> float:
            nonlocal delay_us
            us, enqueue_us = self._sample(warm, work, delay_us, sweep=sweep)
            if enqueue_us > delay_us and delay_us < _MAX_DELAY_US:  # the host came late: part of the time is its own
                delay_us = min(1.5 * enqueue_us + _EVENTS_DELAY_US, _MAX_DELAY_US)
                us, _ = self._sample(warm, work, delay_us, sweep=sweep)
            return us / len(launches)

        return sample

    def _sample(
        self, warm: Callable[[], None], work: Callable[[], None], delay_us: float, *, sweep: bool
    ) -> tuple[float, float]:
        """(microseconds between the events, microseconds that the host took to enqueue what is between them)."""
        import torch

        self._gpu.wake()
        if self.cache is Cache.HOT:
            warm()
        elif sweep:
            self._gpu.sweep_l2()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._gpu.delay(delay_us)
        start.record()
        began = time.perf_counter_ns()
        work()
        enqueue_us = (time.perf_counter_ns() - began) / 1e3
        end.record()
        end.synchronize()
        self._gpu.was_busy()
        return start.elapsed_time(end) * 1e3, enqueue_us

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()
        self._gpu.was_busy()


def _captured(launches: Sequence[Launch], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """One graph of all launches. Not by `torch.cuda.graph`, which empties torch's cache of memory before each."""
    import torch

    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    failure: Exception | None = None
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            for launch in launches:
                launch()
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises; the capture must be ended first
            failure = error
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
            with suppress(RuntimeError):  # torch takes a capture that failed to be under way still, and frees no memory
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)  # noqa: SLF001 - no public way
    current.wait_stream(stream)
    if failure is not None:
        raise CaptureError(one_line(failure)) from failure
    return graph


def one_line(error: BaseException) -> str:
    """An exception's type and text in one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:300]
