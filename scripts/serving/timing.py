"""Time on the device and on the host, and what a captured call launches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

Run = Callable[[int], Any]
"""One call, on the i-th copy of its tensors."""

Row = dict[str, Any]


class Clock:
    """The time that is left to the whole run."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()


def host_us(run: Run, calls: int = 200, samples: int = 15) -> float:
    """Microseconds of host time of one call: enqueued back to back, the device faster than the host."""
    times = []
    for _ in range(samples + 2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for i in range(calls):
            run(i)
        times.append((time.perf_counter() - began) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times[2:])


def between_events_us(launch: Callable[[], None], calls: int) -> float:
    """Microseconds of one of so many calls, from the device's first to its last."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def race(runs: dict[str, Run], calls: int = 20, samples: int = 9) -> dict[str, dict[str, float | None]]:
    """Each contestant's time of a call, launched by the host and replayed from a CUDA graph, sampled in turns."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    side = torch.cuda.Stream()
    for name, run in runs.items():
        with torch.cuda.stream(side):
            for i in range(3):
                run(i)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with suppress(RuntimeError), torch.cuda.graph(graph, stream=side):
            for i in range(calls):
                run(i)
            graphs[name] = graph
        torch.cuda.synchronize()

    def launched(run: Run) -> None:
        for i in range(calls):
            run(i)

    eager: dict[str, list[float]] = {name: [] for name in runs}
    captured: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(samples):
        for name, run in runs.items():
            eager[name].append(between_events_us(lambda run=run: launched(run), calls))
            if name in graphs:
                captured[name].append(between_events_us(graphs[name].replay, calls))
    return {
        name: {
            "eager_us": statistics.median(eager[name]),
            "captured_us": statistics.median(captured[name]) if name in captured else None,
        }
        for name in runs
    }


def launched(run: Run) -> dict[str, list[float]]:
    """Microseconds of each kernel, copy and fill of one replay of a captured call, by name."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        run(0)
    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    seen: dict[str, list[float]] = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            seen.setdefault(event.name, []).append(event.time_range.elapsed_us())
    return seen
