"""The jobs that ship: every file is read, and holds what its comments promise."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tunefarm.jobfile import read_job
from tunefarm.model.dtypes import DType
from tunefarm.model.job import Job
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

FOLDER = Path(__file__).parents[2] / "jobs"
JOBS = sorted(FOLDER.glob("*.yaml"))


def job(name: str) -> Job:
    return read_job(FOLDER / f"{name}.yaml")


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_is_read_is_named_by_its_file_and_asks_for_nothing_twice(path):
    read = read_job(path)
    assert read.name == path.stem
    assert read.tasks
    assert read.duplicates == 0


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_opens_with_a_comment_that_explains_it(path):
    assert path.read_text().startswith("# ")


def test_all_five_are_there():
    assert {path.stem for path in JOBS} >= {"attention", "conv", "linear", "quickstart", "tutorial"}


def test_quickstart_is_small_and_leaves_torch_compile_out():
    tasks = job("quickstart").tasks
    assert 4 <= len(tasks) <= 6
    assert {type(task.problem) for task in tasks} == {MatmulProblem, SdpaProblem, ConvProblem}
    assert max(task.problem.flops for task in tasks) < 10**9
    assert not any(task.search.compile for task in tasks)


def test_tutorial_has_every_lesson_that_is_a_problem():
    by_name: dict[str, list[object]] = {}
    for task in job("tutorial").tasks:
        by_name.setdefault(task.name, []).append(task.problem)
    half, relu = {"dtype": DType.FLOAT16}, {"bias": True, "activation": Activation.RELU}
    image = {"in_channels": 128, "height": 56, "out_channels": 256, "kernel": 3, "padding": 1, **half, **relu}
    assert by_name == {
        "lesson-1-convolution": [ConvProblem(batch=32, **image)],
        "lesson-3-epilogue": [
            MatmulProblem(
                batch=16, m=512, k=1024, n=512, alpha=0.125, bias=True, activation=Activation.GELU, amax=True, **half
            )
        ],
        "lesson-4-attention": [SdpaProblem(batch=4, heads_q=16, seq_q=1024, head_dim=64, mask=Mask.CAUSAL, **half)],
        "lesson-5-serialized": [MatmulProblem(batch=8, m=256, k=512, n=256, **half)],
        "lesson-6-kernel-cache": [ConvProblem(batch=batch, **image) for batch in (8, 16, 24, 32)],
    }


def test_the_tutorials_kernel_cache_lesson_alone_is_dynamic():
    tasks = job("tutorial").tasks
    assert {task.name for task in tasks if task.search.dynamic} == {"lesson-6-kernel-cache"}
    assert len({task.problem.structure for task in tasks if task.search.dynamic}) == 1


def test_attention_covers_what_servers_and_training_meet():
    problems = [task.problem for task in job("attention").tasks]
    assert 24 <= len(problems) <= 40
    assert all(isinstance(p, SdpaProblem) for p in problems)
    groups = {(p.heads_q // p.heads_kv, p.heads_kv == 1) for p in problems}
    assert {(1, False), (4, False), (32, True)} <= groups
    assert {p.mask for p in problems} == set(Mask)
    assert {p.head_dim for p in problems} == {64, 96, 128}
    assert {p.dtype for p in problems} == {DType.BFLOAT16, DType.FLOAT16}
    assert {p.layout.value for p in problems} == {"bhsd", "bshd"}
    assert any(p.seq_q == 1 for p in problems)
    assert any(p.window for p in problems)
    assert any(p.stats for p in problems)
    assert max(p.bytes_moved for p in problems) < 2**31


def test_no_query_of_the_attention_job_is_left_without_a_key():
    for task in job("attention").tasks:
        assert task.problem.band.pairs >= task.problem.seq_q
        assert task.problem.seq_q == task.problem.seq_kv or task.problem.mask is not Mask.CAUSAL


HIDDEN = {"llama-3.1-8b": (4096, 14336, 8 * 128), "qwen2.5-7b": (3584, 18944, 4 * 128)}


@pytest.mark.parametrize("model", sorted(HIDDEN))
def test_linear_has_the_layers_of_a_model(model):
    hidden, mlp, kv = HIDDEN[model]
    shapes = {
        task.name.removeprefix(f"{model}."): (task.problem.k, task.problem.n, task.problem.bias)
        for task in job("linear").tasks
        if task.name.startswith(model)
    }
    assert shapes == {
        "attention.qkv": (hidden, hidden + 2 * kv, model.startswith("qwen")),
        "attention.o": (hidden, hidden, False),
        "mlp.gate_up": (hidden, 2 * mlp, False),
        "mlp.gate": (hidden, mlp, False),
        "mlp.down": (mlp, hidden, False),
    }


def test_linear_goes_from_one_token_to_8192_with_and_without_epilogue():
    problems = [task.problem for task in job("linear").tasks]
    assert 24 <= len(problems) <= 48
    assert {p.m for p in problems} == {1, 16, 128, 1024, 8192}
    assert all(p.transpose_b and p.batch == 1 for p in problems)
    assert {p.activation for p in problems} == {Activation.NONE, Activation.SWISH}


def resnet50() -> set[tuple[int, ...]]:
    """Distinct convolutions of ResNet-50 v1.5: channels in, image, channels out, kernel, stride, and ReLU or not."""
    found = {(3, 224, 64, 7, 2, 1)}
    inside, size = 64, 56
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for stride in [first_stride] + [1] * (blocks - 1):
            out = size // stride
            found |= {
                (inside, size, width, 1, 1, 1),
                (width, size, width, 3, stride, 1),
                (width, out, 4 * width, 1, 1, 0),
            }
            if inside != 4 * width:
                found.add((inside, size, 4 * width, 1, stride, 0))
            inside, size = 4 * width, out
    return found


def test_conv_has_each_convolution_of_resnet_50_once():
    tasks = job("conv").tasks
    problems = [task.problem for task in tasks]
    shapes = [
        (p.in_channels, p.height, p.out_channels, p.kernel, p.stride, int(p.activation is Activation.RELU))
        for p in problems
    ]
    assert len(shapes) == len(set(shapes)) == 23
    assert set(shapes) == resnet50()
    assert len({task.name for task in tasks}) == 23
    for p in problems:
        assert (p.batch, p.dtype, p.layout, p.bias) == (32, DType.FLOAT16, ConvLayout.NHWC, True)
        assert p.padding == p.kernel // 2


def test_reading_a_job_imports_neither_torch_nor_cudnn_nor_the_farm():
    code = (
        "import sys; from pathlib import Path; from tunefarm.jobfile import read_job;"
        f"read_job(Path({str(FOLDER / 'attention.yaml')!r}));"
        "print(sorted({'torch', 'cudnn', 'ray', 'pyarrow', 'duckdb', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_names_say_where_a_problem_comes_from():
    names = {task.name for task in chain(job("conv").tasks, job("linear").tasks)}
    assert {"resnet50.layer1.0.conv1", "resnet50.layer4.0.downsample", "llama-3.1-8b.mlp.gate_up"} <= names
