"""From a sweep to an inference process, on any device: what was swept is shipped, pulled and run from its own bytes."""

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.test_end_to_end import JOB, tunefarm
from tunefarm.store import Store

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench-serve"


def bench(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False
    )


def test_the_benchmark_opens_a_thousand_plans_without_a_gpu_and_says_what_it_can_not_measure(tmp_path):
    done = bench("--parts", "host,open", "--out", tmp_path / "figures")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures").read_text())
    if "host" not in figures:  # no GPU here
        assert "no GPU: of all parts only open can be measured here" in done.stderr
    (opened,) = figures["open"]
    assert (opened["plans"], opened["entries"]) == (1000, 1000)
    assert opened["memory_mb"] < 100


def test_the_benchmark_names_a_part_that_is_not_there():
    done = bench("--parts", "nothing")
    assert done.returncode == 2
    assert "there is no part nothing; there are host, open, load, fresh, problems, block, kernels" in done.stderr


def test_a_fresh_process_runs_what_a_sweep_stored_and_counts_a_hit(tmp_path):
    job, store, key, bundle = (tmp_path / name for name in ("job.yaml", "store", "plans.key", "one.bundle"))
    place, folder, figures, public = tmp_path / "place.bundle", tmp_path / "plans", tmp_path / "figures", f"{key}.pub"
    job.write_text(JOB)
    for arguments in (
        ("sweep", job, "--store", store, "--executor", "inline"),
        ("keygen", key),
        ("ship", "--store", store, "--key", key, "--output", bundle),
        ("push", bundle, place, "--trust", public),
        ("pull", place, "--to", folder, "--trust", public),
    ):
        done = tunefarm(*arguments)
        assert done.returncode == 0, done.stderr
    done = bench(
        "--store", store, "--bundle", folder / "current", "--key", public, "--parts", "fresh", "--out", figures
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(figures.read_text())["fresh"]
    (winner,) = [t for t in Store.open(store).trials() if t.outcome.standing and t.outcome.standing.value == "won"]
    assert row["ran"] == winner.outcome.candidate.label
    assert (row["step"], row["hits"]) == ("shipped", 1)
    assert (row["compared_with"], row["as_stored"]) == ("store", True)  # engine, knobs and bytes
    assert row["difference"] < 0.01
