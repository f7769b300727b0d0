"""The commands of a first day, on whatever device this machine has, with nothing replaced."""

import json
import subprocess
import sys

JOB = """\
search: {compile: false}
measure: {max_rounds: 5}
ops:
  - {op: matmul, name: up, m: 16, n: 64, k: 32, bias: true, activation: gelu}
"""


def tunefarm(*args):
    return subprocess.run(
        [sys.executable, "-m", "tunefarm", *map(str, args)], capture_output=True, text=True, timeout=280, check=False
    )


def test_a_sweep_finds_a_winner_that_query_and_show_know_and_is_done_the_second_time(tmp_path):
    job, store = tmp_path / "job.yaml", tmp_path / "store"
    job.write_text(JOB)
    command = ("sweep", job, "--store", store, "--executor", "inline", "--json")
    first = tunefarm(*command)
    assert first.returncode == 0, first.stderr
    (problem,) = json.loads(first.stdout)["problems"]
    assert problem["winner"]["time_us"] > 0
    assert problem["winner"]["error_l2"] < 0.01

    (row,) = json.loads(tunefarm("query", "--winners", "--store", store, "--format", "json").stdout)
    assert row["candidate"] == problem["winner"]["candidate"]
    assert row["time_us"] == problem["winner"]["time_us"]

    shown = json.loads(tunefarm("show", "up", "--store", store, "--json").stdout)
    assert shown["results"][0]["candidates"][0]["candidate"] == problem["winner"]["candidate"]

    again = json.loads(tunefarm(*command).stdout)
    assert (again["already_done"], again["trials_written"]) == (1, 0)
    assert again["problems"] == [problem]
