import json
import os
import sys

import pytest

from tunefarm.cli import doctor
from tunefarm.cli.doctor import PROBE, ask
from tunefarm.cli.findings import (
    State,
    judge_compiler,
    judge_cudnn,
    judge_environment,
    judge_gpu,
    judge_ray,
    judge_space,
    judge_torch,
    verdict,
)

H200 = {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_bytes": 150_754_820_096, "sm_count": 132}
TURING = {**H200, "name": "Tesla T4", "compute_capability": "7.5"}
DRIVER = {"version": "580.95.05", "cuda": "13.0", "devices": 1}
NO_DRIVER = {"cuda": None, "absent": "libcuda.so.1: cannot open shared object file"}
TORCH = {"version": "2.13.0", "cuda": "13.0", "devices": [H200]}
CPU_TORCH = {"version": "2.13.0+cpu", "cuda": None, "devices": []}
CUDNN = {
    "path": "/venv/nvidia/cudnn/lib/libcudnn.so.9",
    "origin": "wheel nvidia-cudnn-cu13 9.19.0.56, torch's own",
    "backend_version": "9.19.0",
    "frontend_version": "1.32.0",
}


@pytest.fixture
def machine(monkeypatch):
    """A machine of which the probes say so."""

    def install(torch=CPU_TORCH, driver=NO_DRIVER, cudnn=CUDNN):
        answers = {"torch": torch, "driver": driver, "cudnn": cudnn}
        monkeypatch.setattr(doctor, "ask", answers.__getitem__)

    return install


def test_a_machine_with_a_gpu_is_ready(cli, machine):
    machine(TORCH, DRIVER)
    result = cli("doctor", "--require-gpu")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == "ready: 1 GPU"
    assert "NVIDIA H200, compute capability 9.0, 140.4 GiB, 132 multiprocessors" in result.out
    assert "9.19.0 (wheel nvidia-cudnn-cu13 9.19.0.56, torch's own), frontend 1.32.0, /venv/" in result.out


def test_a_machine_without_a_gpu_is_ready_for_the_cpu_and_says_so(cli, machine):
    machine()
    result = cli("doctor")
    assert result.code == 0
    assert result.out.splitlines()[-1].startswith("ready, CPU only")
    assert "mend: install the NVIDIA driver" in result.out


def test_a_gpu_that_is_required_and_missing_exits_with_6(cli, machine):
    machine()
    assert cli("doctor", "--require-gpu").code == 6


def test_a_machine_where_a_sweep_would_fail_exits_with_1(cli, machine):
    machine(torch={"error": "ModuleNotFoundError: No module named 'torch'", "mend": None})
    result = cli("doctor")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "not ready: torch"
    assert "mend: pip install torch" in result.out


def store_finding(cli, path):
    result = cli("doctor", "--json", "--store", path)
    (finding,) = [f for f in json.loads(result.out)["findings"] if f["check"] == "store"]
    return result.code, finding


def test_a_store_that_a_sweep_can_write_is_ready_and_none_is_made(cli, machine, tmp_path, store_path):
    machine()
    (tmp_path / "empty").mkdir()
    for path in (store_path, tmp_path / "empty", tmp_path / "new" / "store"):
        assert store_finding(cli, path)[0] == 0
    assert not (tmp_path / "new").exists()
    assert not list((tmp_path / "empty").iterdir())


def test_a_folder_of_something_else_is_no_place_for_a_store(cli, machine, tmp_path):
    machine()
    (tmp_path / "thesis.tex").touch()
    code, finding = store_finding(cli, tmp_path)
    assert (code, finding["state"]) == (1, "problem")
    assert "'thesis.tex'" in finding["what"]
    assert "name an empty or new folder" in finding["mend"]


@pytest.mark.parametrize("place", ["file", "file/store"])
def test_a_file_in_the_way_of_the_store_is_told(place, cli, machine, tmp_path):
    machine()
    (tmp_path / "file").touch()
    code, finding = store_finding(cli, tmp_path / place)
    assert (code, finding["state"]) == (1, "problem")
    assert finding["mend"]


def test_a_place_that_can_not_be_written_is_told(cli, machine):
    machine()
    code, finding = store_finding(cli, "/proc/store")  # not even root may make one there
    assert (code, finding["state"]) == (1, "problem")
    assert "make it a folder that you may write" in finding["mend"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_store_is_told(cli, machine, store_path):
    machine()
    (store_path / "tmp").chmod(0o500)
    code, finding = store_finding(cli, store_path)
    assert (code, finding["state"]) == (1, "problem")
    assert "writable" in finding["mend"]


def test_json_holds_every_finding_with_its_mend(cli, machine):
    machine()
    payload = json.loads(cli("doctor", "--json").out)
    assert payload["ready"] is True
    assert payload["gpus"] == 0
    by_check = {finding["check"]: finding for finding in payload["findings"]}
    assert by_check["gpu"]["state"] == "absent"
    assert by_check["gpu"]["mend"]
    assert set(by_check) >= {"python", "torch", "cudnn", "environment", "compiler", "ray", "store", "tmp", "shm"}


def test_the_real_probes_answer_on_any_machine():
    for probe in ("torch", "driver", "cudnn"):
        facts = ask(probe)
        assert facts.keys() & {"version", "cuda", "backend_version", "error"}, probe


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process died of SIGSEGV"),
        ("import sys; sys.exit('no such library')", "its process ended with exit code 1: no such library"),
        ("print('noise')", "its process ended with exit code 0"),
    ],
)
def test_a_probe_that_dies_is_a_finding(code, error):
    assert ask("torch", (sys.executable, "-c", code)) == {"error": error}


def test_a_probe_that_hangs_is_a_finding():
    assert ask("torch", (sys.executable, "-c", "import time; time.sleep(60)"), 0.5) == {"error": "no answer in 0.5 s"}


def test_what_a_library_prints_does_not_spoil_the_answer(tmp_path):
    (tmp_path / "torch.py").write_text("print('hello')\nraise RuntimeError('half installed')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from tunefarm.engines.probe import main; main('torch')"
    assert ask("torch", (PROBE[0], "-c", code)) == {"error": "RuntimeError: half installed", "mend": None}


@pytest.mark.parametrize(
    ("driver", "torch", "state", "words"),
    [
        (NO_DRIVER, CPU_TORCH, State.ABSENT, "no NVIDIA driver"),
        ({"error": "no answer in 120 s"}, TORCH, State.PROBLEM, "no answer in 120 s"),
        (
            {**DRIVER, "error": "CUDA_ERROR_NO_DEVICE", "mend": "nvidia-smi"},
            TORCH,
            State.PROBLEM,
            "CUDA_ERROR_NO_DEVICE",
        ),
        ({**DRIVER, "devices": 0}, {**TORCH, "devices": []}, State.ABSENT, "no device"),
        (DRIVER, CPU_TORCH, State.PROBLEM, "built for CUDA 13.0 or older"),
        ({**DRIVER, "cuda": "12.4"}, {**TORCH, "devices": []}, State.PROBLEM, "update the driver"),
        (DRIVER, {"error": "gone"}, State.PROBLEM, "mend torch first"),
        (DRIVER, {**TORCH, "devices": []}, State.PROBLEM, "torch.cuda.init"),
        (DRIVER, {**TORCH, "devices": [TURING]}, State.WARNING, "no fused attention"),
        (DRIVER, TORCH, State.OK, "NVIDIA H200"),
    ],
)
def test_every_way_to_have_no_gpu_has_its_reason_and_mend(driver, torch, state, words):
    finding = judge_gpu(driver, torch)[-1]
    assert finding.state is state
    assert words in f"{finding.what} {finding.mend}"
    assert state is State.OK or finding.mend


def test_a_library_that_pip_did_not_bring_is_a_warning():
    assert judge_cudnn(CUDNN, has_gpu=True).state is State.OK
    stray = judge_cudnn({**CUDNN, "origin": "LD_LIBRARY_PATH"}, has_gpu=True)
    assert stray.state is State.WARNING
    assert "LD_LIBRARY_PATH" in stray.mend
    jit = {**CUDNN, "path": "/venv/nvidia/cudnn_jit/lib/libcudnn.so.9"}
    assert judge_cudnn(jit, has_gpu=True).state is State.WARNING
    assert judge_cudnn(jit, has_gpu=False).state is State.OK


def test_without_cudnn_only_a_gpu_is_of_no_use():
    facts = {"error": "no libcudnn.so.9 was found; pip install nvidia-cudnn-cu13", "mend": None}
    assert judge_cudnn(facts, has_gpu=True).state is State.PROBLEM
    assert judge_cudnn(facts, has_gpu=False).state is State.ABSENT


def test_lesser_things_are_warnings_with_a_mend():
    found = [
        judge_compiler(None),
        judge_space("shm", "/dev/shm", 64 << 20, 1 << 30, "--shm-size=2g"),
        judge_space("store", "/gone", None, 1, "free disk"),
        judge_environment({"CUDNN_LOGLEVEL_DBG": "3"}),
    ]
    assert {finding.state for finding in found} == {State.WARNING}
    assert all(finding.mend for finding in found)
    assert verdict(found, 1) == (True, "ready: 1 GPU")


def test_variables_that_change_the_libraries_are_listed():
    assert judge_environment({"CUDA_VISIBLE_DEVICES": "1"}).what == "CUDA_VISIBLE_DEVICES=1"


def test_without_ray_or_torch_the_verdict_is_not_ready():
    found = [judge_ray(None, 2, 1 << 30), judge_torch({"error": "gone"})]
    assert verdict(found, 1) == (False, "not ready: ray, torch")
