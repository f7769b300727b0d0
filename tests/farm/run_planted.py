"""A sweep of planted candidates as a process of its own, for tests that kill it: `python -m tests.farm.run_planted`."""

import json
import os
import sys
from pathlib import Path

from tests.farm import planted
from tunefarm.farm.progress import SweepState
from tunefarm.farm.sweep import SweepOptions, SweepResult, run_sweep
from tunefarm.model.job import Job, Protocol, Search, Task
from tunefarm.model.trial import Status
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.store import Store


class Silent:
    """Progress that nobody looks at."""

    def __init__(self) -> None:
        self.states: list[SweepState] = []

    def update(self, state: SweepState) -> None:
        self.states.append(state)


class Announcing(Silent):
    """Says when the sweep has begun, and so hears signals."""

    def update(self, state: SweepState) -> None:
        if not self.states:
            print("begun", flush=True)
        super().update(state)


def make_job(problems: int, engine: str = planted.FEW) -> Job:
    search = Search(engines=(engine, "torch"), compile=False)
    tasks = tuple(
        Task(f"mm{i}", MatmulProblem(m=16 * (i + 1), n=16, k=16), search, Protocol(max_rounds=2))
        for i in range(problems)
    )
    return Job("planted", "planted.yaml", tasks)


def sweep(
    store: Path,
    problems: int,
    executor: str = "inline",
    retry: tuple[Status, ...] = (),
    progress: Silent | None = None,
    *,
    engine: str = planted.FEW,
) -> SweepResult:
    options = SweepOptions(executor=executor, builders=2, deadline_s=2.0, retry=retry, journal=store / "journal")
    return run_sweep(make_job(problems, engine), Store.open(store, create=True), options, progress or Silent())


if __name__ == "__main__":
    os.environ["PLANTED_DRIVER"] = str(os.getpid())
    engine = sys.argv[4] if len(sys.argv) > 4 else planted.FEW
    result = sweep(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], progress=Announcing(), engine=engine)
    print(json.dumps({"interrupted": result.interrupted, "written": result.trials_written}))
    sys.stdout.flush()
    os._exit(0 if result.interrupted is None else 130)
