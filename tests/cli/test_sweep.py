"""The verb alone: the farm behind it is a fake that writes what a farm would."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.report.make import TARGET, cudnn, failed, torch, trial
from tunefarm.farm.sweep import SweepResult
from tunefarm.model.candidate import Proposal
from tunefarm.model.errors import FarmError
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.store import Store, StoredProposal

JOB = """\
job: test
ops:
  - {op: matmul, name: up, m: 8, n: 64, k: 32}
  - {op: matmul, name: down, m: 64, n: 64, k: 32}
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def store_path(tmp_path):
    return tmp_path / "my store"


@pytest.fixture
def sweep(cli, job, store_path):
    """Sweep the job into the store with some more options."""
    return lambda *options: cli("sweep", job, "--store", store_path, *options)


@pytest.fixture
def resume_command(job, store_path):
    return f"tunefarm sweep {job} --store '{store_path}'"


class FakeFarm:
    """Stands in for `run_sweep`; remembers how it was called."""

    def __init__(self, trials=(), interrupted=None, error=None):
        self.trials, self.interrupted, self.error = list(trials), interrupted, error
        self.job = self.options = None

    def __call__(self, job, store, options, progress):
        self.job, self.options = job, options
        if self.error:
            raise self.error
        store.put_target(TARGET)
        if self.trials:
            store.append_trials(self.trials)
        return SweepResult(
            sweep="20300101T000000-abcdef",
            interrupted=self.interrupted,
            targets=(TARGET,),
            problems=2,
            already_done=1,
            trials_written=len(self.trials),
        )


@pytest.fixture
def farm(monkeypatch):
    def install(*args, **kwargs):
        fake = FakeFarm(*args, **kwargs)
        monkeypatch.setattr("tunefarm.farm.sweep.run_sweep", fake)
        return fake

    return install


def won(n, us=10.0):
    return [trial(cudnn("eng4", first=True), us, n=n, standing=Standing.WON), trial(torch("eager"), us * 2, n=n)]


def test_a_sweep_prints_winners_on_stdout_and_where_to_look_on_stderr(farm, sweep, store_path):
    farm([*won(8), *won(64, 30.0)])
    result = sweep()
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[2].split()[:4] == ["up", "cudnn:eng4", "10.00", "10.00"]
    assert lines[3].split()[:4] == ["down", "cudnn:eng4", "30.00", "30.00"]
    assert lines[-2].startswith("winner against cuDNN's default 1.00x, against torch 2.00x")
    done, *rest = result.err.splitlines()[-4:]
    assert done.startswith("2 problems (1 done before) in ")
    assert done.endswith(" s, 4 trials written")
    assert rest == [
        f"store: {store_path}",
        f"next:  tunefarm show up --store '{store_path}'",
        f"       tunefarm query --winners --store '{store_path}'",
    ]


def test_a_problem_without_a_winner_exits_with_3(farm, sweep):
    farm([*won(8), failed(cudnn("eng4"), Status.WRONG, Stage.VERIFY, "NaN", n=64)])
    result = sweep()
    assert result.code == 3
    assert "no winner: 1 wrong" in result.out
    assert "1 of 2 problems without a winner" in result.out


def test_a_problem_without_any_trial_has_no_winner_either(farm, sweep):
    farm(won(8))
    result = sweep()
    assert result.code == 3
    assert "no winner: no candidates" in result.out


def test_json_is_one_object_with_every_problem(farm, sweep):
    farm([*won(8), *won(64)])
    result = sweep("--json")
    payload = json.loads(result.out)
    assert payload["sweep"] == "20300101T000000-abcdef"
    assert [p["name"] for p in payload["problems"]] == ["up", "down"]
    assert payload["problems"][0]["gain_over_torch"] == 2.0
    assert payload["totals"]["over_torch"] == {"geometric_mean": pytest.approx(2.0), "problems": 2}


def test_options_reach_the_farm(farm, sweep):
    fake = farm([*won(8), *won(64)])
    sweep("--address", "head:6379", "--builders", 7, "--deadline", "2.5", "--retry", "crashed, timed_out")
    assert fake.options.executor == "ray"
    assert fake.options.address == "head:6379"
    assert fake.options.builders == 7
    assert fake.options.deadline_s == 2.5
    assert fake.options.retry == (Status.CRASHED, Status.TIMED_OUT)
    assert [task.name for task in fake.job.tasks] == ["up", "down"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retry", "crashed,measured"], "no status measured; there are wrong, declined"),
        (["--executor", "inline", "--address", "head:6379"], "--address is for --executor ray"),
        (["--limit", "1"], "over the limit of 1"),
        (["--builders", "0"], "Invalid value for '--builders'"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_starts(options, message, farm, sweep):
    fake = farm()
    result = sweep(*options)
    assert result.code == 2
    assert message in result.err
    assert fake.job is None


def test_mistakes_in_the_job_file_exit_with_2_and_name_the_line(cli, tmp_path, farm):
    path = tmp_path / "bad.yaml"
    path.write_text("ops:\n  - {op: matmul, m: 8, n: 64, kk: 32}\n")
    result = cli("sweep", path, "--store", tmp_path / "store")
    assert (result.code, result.out) == (2, "")
    assert f"{path}:2:" in result.err


def test_a_farm_that_fails_exits_with_1_and_its_reason(farm, sweep):
    farm(error=FarmError("could not start Ray"))
    result = sweep()
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "tunefarm: could not start Ray"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_ends_with_the_command_that_resumes_it(number, code, farm, sweep, resume_command):
    farm(won(8), interrupted=number)
    result = sweep()
    assert (result.code, result.out) == (code, "")
    assert result.err.splitlines()[-1] == resume_command


def test_a_second_ctrl_c_ends_with_the_same_command(farm, sweep, resume_command):
    farm(error=KeyboardInterrupt())
    result = sweep()
    assert result.code == 130
    assert result.err.splitlines()[-1] == resume_command


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_the_farm_does_not_hear_ends_with_the_same_command(number, code, job, tmp_path):
    script = """
        import sys, time, pathlib
        import tunefarm.farm.sweep as farm
        from tunefarm.cli import main

        def run_sweep(*_):
            pathlib.Path(sys.argv[1]).touch()
            time.sleep(60)

        farm.run_sweep = run_sweep
        sys.exit(main(sys.argv[2:]))
    """
    ready = tmp_path / "ready"
    argv = ["sweep", str(job), "--store", str(tmp_path / "store")]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(ready), *argv], stderr=subprocess.PIPE, text=True
    )
    while not ready.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1] == f"tunefarm {' '.join(argv)}"


def test_a_dry_run_lists_the_problems_and_starts_nothing(farm, sweep, store_path):
    fake = farm()
    result = sweep("--dry-run")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["name", "up", "down"]
    assert result.err.splitlines()[0].startswith("2 problems; ")
    assert fake.job is None
    assert not store_path.exists()


def test_a_dry_run_tells_what_the_store_has_already(job, sweep, store_path):
    store = Store.open(store_path, create=True)
    store.put_target(TARGET)
    from tunefarm.jobfile import read_job

    task = read_job(job).tasks[0]
    rows = [trial(cudnn("eng4"), 10.0, n=8), trial(torch("eager"), 20.0, n=8)]
    store.append_proposals(
        [
            StoredProposal(task.problem.key, TARGET.key, task.search.key, Proposal(engine, candidates))
            for engine, candidates in (
                ("cudnn", (rows[0].outcome.candidate, cudnn("eng5"))),
                ("torch", (rows[1].outcome.candidate,)),
            )
        ]
    )
    store.append_trials(rows)
    lines = sweep("--dry-run").out.splitlines()
    assert lines[0].endswith(TARGET.label)
    assert lines[1].endswith("1 candidate left")
    assert lines[2].endswith("to ask cudnn and torch")
    store.append_trials([trial(cudnn("eng5"), 11.0, n=8)])
    payload = json.loads(sweep("--dry-run", "--json").out)
    assert payload["problems"][0]["left"] == {TARGET.key: "done"}


def test_a_dry_run_imports_no_engine_and_no_ray(job, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import sys
from tunefarm.cli import main
main(sys.argv[1:])
print(sorted({'torch', 'cudnn', 'ray', 'duckdb'} & set(sys.modules)))
""",
            *("sweep", str(job), "--store", str(tmp_path / "store"), "--dry-run"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ.copy(),
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_job_is_told_with_the_file_that_was_probably_meant(cli, tmp_path):
    (tmp_path / "quickstart.yaml").touch()
    result = cli("sweep", tmp_path / "quikstart.yaml")
    assert result.code == 2
    assert "no such file; did you mean `quickstart.yaml`?" in " ".join(result.err.split())


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_deadline_that_is_none_is_refused(seconds, cli, tmp_path):
    (tmp_path / "job.yaml").touch()
    result = cli("sweep", tmp_path / "job.yaml", "--deadline", seconds)
    assert result.code == 2
    assert "Invalid value for '--deadline'" in result.err
