"""The executor of one machine without Ray: supervisors in threads, work in the same replaceable children."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from tunefarm.farm.builder import Builder
from tunefarm.farm.executor import Building, Executor, Measuring, Ticket, Worker, WorkerLostError
from tunefarm.farm.isolation import ChildFailedError
from tunefarm.farm.measurer import Measurer
from tunefarm.model.errors import FarmError

NODE = "local"


class InlineExecutor(Executor):
    """One device: the first GPU that this process may see, or the CPU. Starts seconds faster than Ray."""

    def __init__(self, deadline_s: float | None = None) -> None:
        """Nothing starts before `start`.

        Args:
            deadline_s: bound on any one step of a candidate.
        """
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="tunefarm")
        self._workers: list[Builder | Measurer] = []

    def start(self, check: Callable[[], None]) -> list[Measuring]:
        first_device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        measurer = Measurer({"CUDA_VISIBLE_DEVICES": first_device}, NODE, self._deadline_s)
        self._workers.append(measurer)
        try:
            facts = measurer.describe()
        except ChildFailedError as error:
            raise FarmError(f"the measuring worker did not start: {error}") from error
        check()
        return [Measuring(measurer, facts)]

    def add_builders(self, target_workers: Sequence[Measuring], count: int | None) -> list[Building]:
        if count is None:
            count = builder_count(len(os.sched_getaffinity(0)), len(target_workers))
        env = {"CUDA_VISIBLE_DEVICES": target_workers[0].facts.visible_devices}
        builders = [Builder(env, self._deadline_s) for _ in range(count)]
        self._workers.extend(builders)
        return [Building(builder, env, NODE) for builder in builders]

    def call(self, worker: Worker, method: str, *args: Any) -> Ticket:
        return self._threads.submit(getattr(worker.handle, method), *args)

    def wait(self, tickets: Sequence[Ticket], timeout_s: float) -> list[Ticket]:
        done, _ = wait([_future(t) for t in tickets], timeout_s, return_when=FIRST_COMPLETED)
        return list(done)

    def result(self, ticket: Ticket) -> Any:
        value = self._value(ticket)
        return value[0] if isinstance(value, tuple) else value

    def plans_of(self, ticket: Ticket) -> Any:
        return self._value(ticket)[1]

    def replace(self, worker: Worker) -> None:
        self._workers.remove(worker.handle)
        worker.handle.close()  # its thread, if one still waits, ends with an error that nobody asks for
        if isinstance(worker, Measuring):
            worker.handle = Measurer({"CUDA_VISIBLE_DEVICES": worker.facts.visible_devices}, NODE, self._deadline_s)
        else:
            worker.handle = Builder(worker.env, self._deadline_s)
        self._workers.append(worker.handle)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.wait_closed()

    def _value(self, ticket: Ticket) -> Any:
        try:
            return _future(ticket).result(timeout=0)
        except Exception as error:
            raise WorkerLostError(f"a worker failed: {type(error).__name__}: {error}") from error


def _future(ticket: Ticket) -> Future[Any]:
    assert isinstance(ticket, Future)
    return ticket


def builder_count(cores: int, measurers: int) -> int:
    """Compiling workers for a machine: every core that its measuring workers don't need, and at least one."""
    return max(1, cores - measurers)
