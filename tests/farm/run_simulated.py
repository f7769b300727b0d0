"""A sweep of simulated GPUs as a process of its own, for tests that kill it: `python -m tests.farm.run_simulated`."""

import os
import sys
from pathlib import Path

from tests.farm.run_planted import Announcing
from tests.farm.simulated import SimulatedFarm, make_job
from tunefarm.farm.sweep import SweepOptions, run_sweep
from tunefarm.store import Store

GPUS = 64
CANDIDATES = 10

if __name__ == "__main__":
    path, problems = Path(sys.argv[1]), int(sys.argv[2])
    farm = SimulatedFarm(GPUS, CANDIDATES, plan_bytes=64, lose=0.01, seed=os.getpid())
    options = SweepOptions(journal=path / "journal")
    result = run_sweep(make_job(problems), Store.open(path, create=True), options, Announcing(), farm)
    sys.exit(0 if result.interrupted is None else 130)
