"""From a sweep to an inference process, on any device: what was swept is shipped, pulled and run from its own bytes."""

import json
import subprocess
import sys

from tests.cli.test_end_to_end import JOB, tunefarm
from tunefarm.store import Store

SERVE = """
import json, sys
from hashlib import sha256
from tunefarm.engines.cudnn_blob import read_blob
from tunefarm.ops import operation_of
from tunefarm.runtime import PlanBook
from tunefarm.runtime.machine import current_device

book = PlanBook.open(sys.argv[1], sys.argv[2])
(entry,) = book.bundle.manifest.entries
problem = entry.problem
inputs = operation_of(problem).make_inputs(problem, current_device(), 0)
result = book.run(problem, inputs)["c"].float()
expected = operation_of(problem).baselines(problem)[0].run(inputs)["c"].float()
blob = book.bundle.plan_bytes(entry)
facts = read_blob(blob) if entry.candidate.engine == "cudnn" else None
print(json.dumps({
    "trial": entry.trial,
    "ran": book.explain(problem).decision.candidate.label,
    "digest": sha256(blob).hexdigest(),
    "engine_id": facts.engine_id if facts else None,
    "knobs": facts.knobs if facts else [],
    "steps": book.counters.steps,
    "error": ((result - expected).norm() / expected.norm()).item(),
}))
"""


def test_a_fresh_process_runs_what_a_sweep_stored_and_counts_a_hit(tmp_path):
    job, store, key, bundle = (tmp_path / name for name in ("job.yaml", "store", "plans.key", "one.bundle"))
    job.write_text(JOB)
    public = f"{key}.pub"
    for arguments in (
        ("sweep", job, "--store", store, "--executor", "inline"),
        ("keygen", key),
        ("ship", "--store", store, "--key", key, "--output", bundle),
        ("push", bundle, tmp_path / "place.bundle", "--trust", public),
        ("pull", tmp_path / "place.bundle", "--to", tmp_path / "plans", "--trust", public),
    ):
        done = tunefarm(*arguments)
        assert done.returncode == 0, done.stderr
    served = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "plans" / "current"), public],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert served.returncode == 0, served.stderr
    told = json.loads(served.stdout)
    (trial,) = [trial for trial in Store.open(store).trials() if trial.key == told["trial"]]
    assert told["ran"] == trial.outcome.candidate.label
    assert told["digest"] == trial.plan_digest
    assert told["engine_id"] == trial.outcome.candidate.engine_id
    assert [tuple(knob) for knob in told["knobs"]] == list(trial.resolved_knobs)
    assert told["steps"] == {"shipped": 1, "rebuilt": 0, "heuristic": 0, "torch": 0}
    assert told["error"] < 0.01
