"""The executor on Ray: places workers on nodes and carries their calls. Retries nothing, restarts nothing."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm.farm.builder import Builder
from tunefarm.farm.executor import Building, Executor, Measuring, Ticket, Worker, WorkerLostError
from tunefarm.farm.inline import builder_count
from tunefarm.farm.interrupt import handlers_kept
from tunefarm.farm.measurer import Measurer
from tunefarm.farm.messages import WorkerFacts
from tunefarm.farm.warden import Warden
from tunefarm.model.errors import FarmError

START_DEADLINE_S = 180.0
ANSWER_DEADLINE_S = 10.0
CHECK_EVERY_S = 0.5
OBJECT_STORE_BYTES = 1 << 30
"""Plans in flight are tens of megabytes; Ray's default is a third of the machine's memory."""


class _Host:
    """The actor: one supervisor, whose methods it calls. Knows which device Ray gave it."""

    def __init__(self, make: Callable[[str, str], Any]) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        self._worker = make(os.environ.get("CUDA_VISIBLE_DEVICES", ""), node)

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self._worker, method)(*args)


class RayExecutor(Executor):
    """Workers as Ray actors: an own local Ray by default, a running cluster by its address."""

    def __init__(self, address: str | None = None, deadline_s: float | None = None) -> None:
        """Nothing starts before `start`.

        Args:
            address: of a running Ray cluster; None starts Ray on this machine, for this process alone.
            deadline_s: bound on any one step of a candidate.
        """
        self._address = address
        self._deadline_s = deadline_s
        self._open = contextlib.ExitStack()
        self._plans: dict[Any, Any] = {}

    def start(self, check: Callable[[], None]) -> list[Measuring]:
        warden = None
        if self._address is None:
            # Whoever reaches Ray's ports runs code: a token that only our own processes know keeps others out. Ray
            # reads the mode once, when it is imported: a caller who did that before has chosen.
            if "ray" not in sys.modules:
                os.environ.setdefault("RAY_AUTH_MODE", "token")
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            warden = self._open.enter_context(Warden())
        else:
            _require_answer(self._address)
        # Compiling workers ask Ray for no GPU and are told theirs by us.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        # Ray prints crashes of its workers to stdout whatever it is told, and stdout is for data.
        self._open.enter_context(contextlib.redirect_stdout(sys.stderr))
        options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        try:
            with handlers_kept():
                ray.init(
                    address=self._address or "local",
                    log_to_driver=False,
                    logging_level="ERROR",
                    **(options if self._address is None else {}),
                )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"join the Ray cluster at {self._address}" if self._address else "start Ray on this machine"
            raise FarmError(f"could not {where}: {_one_line(error)}. `tunefarm doctor` tells more") from error
        check()
        gpus = int(ray.cluster_resources().get("GPU", 0))
        handles = [self._measurer(gpu=True) for _ in range(gpus)] or [self._measurer(gpu=False)]
        reports = [handle.call.remote("describe") for handle in handles]
        late, deadline = reports, time.monotonic() + START_DEADLINE_S
        while late and time.monotonic() < deadline:
            _, late = ray.wait(late, num_returns=len(late), timeout=CHECK_EVERY_S)
            check()
        if late:
            raise FarmError(f"{len(late)} of {len(reports)} measuring workers did not start in {START_DEADLINE_S:g} s")
        try:
            facts: list[WorkerFacts] = ray.get(reports)
        except ray.exceptions.RayError as error:
            raise FarmError(f"a measuring worker did not start: {_one_line(error)}") from error
        if warden is not None:
            warden.all_started()
        return [Measuring(handle, fact) for handle, fact in zip(handles, facts, strict=True)]

    def add_builders(self, target_workers: Sequence[Measuring], count: int | None) -> list[Building]:
        import ray

        by_node: dict[str, list[Measuring]] = {}
        for worker in target_workers:
            by_node.setdefault(worker.facts.node, []).append(worker)
        cores = {node["NodeID"]: int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"]}
        builders: list[Building] = []
        for place, (node, workers) in enumerate(by_node.items()):
            if count is None:
                here = builder_count(cores.get(node, 1), len(workers)) if workers[0].facts.target.kind == "cuda" else 1
            else:
                here = count // len(by_node) + (place < count % len(by_node))
            for i in range(here):
                env = {"CUDA_VISIBLE_DEVICES": workers[i % len(workers)].facts.visible_devices}
                builders.append(Building(self._builder(env, node), env, node))
        return builders

    def call(self, worker: Worker, method: str, *args: Any) -> Ticket:
        if method != "build":
            return worker.handle.call.remote(method, *args)  # type: ignore[no-any-return]
        report, plans = worker.handle.call.options(num_returns=2).remote(method, *args)
        self._plans[report] = plans
        return report  # type: ignore[no-any-return]

    def wait(self, tickets: Sequence[Ticket], timeout_s: float) -> list[Ticket]:
        import ray

        done, rest = ray.wait(list(tickets), num_returns=1, timeout=timeout_s)
        if done and rest:  # whatever else is done too: a look costs milliseconds where thousands are under way
            more, _ = ray.wait(rest, num_returns=len(rest), timeout=0)
            done = [*done, *more]
        return list(done)

    def result(self, ticket: Ticket) -> Any:
        import ray

        try:
            return ray.get(ticket)
        except ray.exceptions.RayError as error:
            self._plans.pop(ticket, None)
            raise WorkerLostError(_one_line(error)) from error

    def plans_of(self, ticket: Ticket) -> Any:
        return self._plans.pop(ticket)

    def replace(self, worker: Worker) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(worker.handle, no_restart=True)
        if isinstance(worker, Measuring):
            worker.handle = self._measurer(gpu=worker.facts.target.kind == "cuda")
        else:
            worker.handle = self._builder(worker.env, worker.node)

    def close(self) -> None:
        if "ray" in sys.modules:
            import ray

            with contextlib.suppress(Exception):  # a second failure here would hide the first
                ray.shutdown()
        self._open.close()

    def _measurer(self, *, gpu: bool) -> Any:
        import ray

        options = {"num_gpus": 1, "num_cpus": 0} if gpu else {"num_cpus": 1}
        actor = ray.remote(max_restarts=0, max_task_retries=0, **options)(_Host)
        return actor.remote(_MeasurerMaker(self._deadline_s))

    def _builder(self, env: Mapping[str, str], node: str) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        actor = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0, scheduling_strategy=place)(_Host)
        return actor.remote(_BuilderMaker(env, self._deadline_s))


@dataclass(frozen=True)
class _MeasurerMaker:
    deadline_s: float | None

    def __call__(self, visible_devices: str, node: str) -> Measurer:
        return Measurer({"CUDA_VISIBLE_DEVICES": visible_devices}, node, self.deadline_s)


@dataclass(frozen=True)
class _BuilderMaker:
    env: Mapping[str, str]
    deadline_s: float | None

    def __call__(self, _visible_devices: str, _node: str) -> Builder:
        return Builder(self.env, self.deadline_s)


def _require_answer(address: str) -> None:
    """Refuse a cluster address that nobody listens at: Ray itself would try for minutes.

    Raises:
        FarmError: nobody does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # `auto`, say: Ray's own to resolve
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_DEADLINE_S).close()
    except (OSError, OverflowError) as error:
        raise FarmError(
            f"no Ray cluster answers at {address}: {error}. Leave --address out to start Ray here"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
