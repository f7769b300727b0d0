"""The engine `torch`, on the CPU that every host has."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.engines.problems import ALL, MATMUL, SDPA
from tunefarm.engines.torch import TorchEngine, _reason
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of
from tunefarm.ops.sdpa import SdpaProblem

EAGER = Candidate(engine="torch", name="eager")
CPU = torch.device("cpu")


@pytest.fixture
def engine() -> TorchEngine:
    return TorchEngine()


@pytest.mark.parametrize("problem", ALL.values(), ids=ALL)
def test_every_baseline_is_a_candidate_eager_first(engine: TorchEngine, problem: Problem) -> None:
    proposal = engine.propose(problem, Search())
    names = [b.name for b in operation_of(problem).baselines(problem)]
    assert [c.name for c in proposal.candidates] == names
    assert [c.rank for c in proposal.candidates] == list(range(len(names)))
    assert proposal.candidates[0].name == "eager"
    assert {c.engine for c in proposal.candidates} == {c.proposed_by for c in proposal.candidates} == {"torch"}
    assert not any(c.is_default for c in proposal.candidates)


def test_nothing_compiles_where_the_job_forbids_it(engine: TorchEngine) -> None:
    names = [c.name for c in engine.propose(MATMUL, Search(compile=False)).candidates]
    assert "eager" in names
    assert "compile" not in names


def test_a_plan_is_a_recipe_in_json(engine: TorchEngine) -> None:
    plan = engine.build(MATMUL, EAGER)
    assert json.loads(plan.blob) == {"format": 1, "baseline": "eager", "torch": torch.__version__}
    assert plan.workspace_bytes == 0
    assert plan.knobs == ()
    assert engine.build(MATMUL, EAGER).digest == plan.digest


@pytest.mark.parametrize("problem", ALL.values(), ids=ALL)
def test_a_launch_puts_its_results_into_the_outputs(engine: TorchEngine, problem: Problem) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, CPU, seed=1)
    outputs = {t.name: torch.empty(0) for t in problem.outputs}
    executable = engine.load(problem, engine.build(problem, EAGER))
    assert executable.workspace_bytes == 0
    executable.bind(inputs, outputs, None)()
    reference = operation.reference(problem, inputs)
    for spec in problem.outputs:
        result, want = outputs[spec.name].double(), reference[spec.name]
        assert result.shape == spec.shape
        assert torch.linalg.vector_norm(result - want) <= 0.01 * torch.linalg.vector_norm(want)


def test_each_launch_computes_anew(engine: TorchEngine) -> None:
    inputs = operation_of(MATMUL).make_inputs(MATMUL, CPU, seed=1)
    outputs: dict[str, torch.Tensor] = {}
    launch = engine.load(MATMUL, engine.build(MATMUL, EAGER)).bind(inputs, outputs, None)
    launch()
    first = outputs["c"].clone()
    inputs["a"].neg_()
    launch()
    assert not torch.equal(first, outputs["c"])


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "no recipe"),
        (b"\x00\xff", "no recipe"),
        (b"[]", "no recipe"),
        (b"{}", "no recipe"),
        (b'{"format": 2, "baseline": "eager"}', "format 2; this tunefarm reads format 1"),
        (b'{"format": 1, "baseline": "compile"}', "for compile, not eager"),
    ],
)
def test_other_bytes_are_declined(engine: TorchEngine, blob: bytes, reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        engine.load(MATMUL, Plan(EAGER, blob, workspace_bytes=0, build_ms=0.0))


def test_a_baseline_that_the_problem_has_not_is_declined(engine: TorchEngine) -> None:
    flash = replace(EAGER, name="sdpa-flash")
    with pytest.raises(Declined, match="matmul has no torch baseline named sdpa-flash"):
        engine.build(MATMUL, flash)
    plan = Plan(flash, engine.build(SdpaProblem(heads_q=1, seq_q=8, head_dim=8), flash).blob, 0, 0.0)
    with pytest.raises(Declined, match="matmul has no torch baseline named sdpa-flash"):
        engine.load(MATMUL, plan)


def test_an_attention_backend_that_refuses_is_declined_when_it_is_bound(engine: TorchEngine) -> None:
    problem = SdpaProblem(heads_q=SDPA.heads_q, seq_q=SDPA.seq_q, head_dim=SDPA.head_dim)
    executable = engine.load(problem, engine.build(problem, replace(EAGER, name="sdpa-cudnn")))
    inputs = operation_of(problem).make_inputs(problem, CPU, seed=1)
    with pytest.raises(Declined, match="No viable backend") as refusal:
        executable.bind(inputs, {}, None)
    assert "\n" not in str(refusal.value)


def test_what_torch_warns_of_is_the_reason_where_its_error_has_none() -> None:
    told = [
        "Memory efficient kernel not used because: (Triggered internally at /src/sdp_utils.cpp:773.)",
        "Memory Efficient attention has been runtime disabled. (Triggered internally at /src/sdp_utils.cpp:550.)",
        "Flash attention kernel not used because: (Triggered internally at /src/sdp_utils.cpp:775.)",
        "Expected query, key and value to be of dtype: {Half, BFloat16}. (Triggered internally at /src/sdp.h:97.)",
    ]
    reason = _reason("No available kernel. Aborting execution.", told)
    assert reason == "Expected query, key and value to be of dtype: {Half, BFloat16}."
    assert _reason("expected m1 and m2\nmore", ["a deprecation"]) == "expected m1 and m2"
    assert len(_reason("why " * 1000, [])) <= 240


COMPILE = """
import sys, torch, psutil
from tests.engines.problems import MATMUL
from tunefarm.engines.torch import TorchEngine
from tunefarm.model.candidate import Candidate
from tunefarm.model.errors import Declined
from tunefarm.ops import operation_of
engine = TorchEngine()
executable = engine.load(MATMUL, engine.build(MATMUL, Candidate(engine="torch", name="compile")))
operation = operation_of(MATMUL)
inputs, outputs = operation.make_inputs(MATMUL, torch.device("cpu"), seed=1), {}
try:
    launch = executable.bind(inputs, outputs, None)
except Declined as refusal:
    print("Declined:", refusal)
    sys.exit()
stats = torch._dynamo.utils.counters["stats"]
compiled = stats["unique_graphs"]
launch()
print("compiled by the bind:", compiled, "by the launch:", stats["unique_graphs"] - compiled)
want = operation.reference(MATMUL, inputs)["c"]
print("right:", bool((outputs["c"].double() - want).norm() <= 0.01 * want.norm()))
print("threads:", torch._inductor.config.compile_threads, "children:", psutil.Process().children(recursive=True))
"""


def compile_in_a_fresh_process(**env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout.splitlines()


def test_binding_compiles_and_leaves_no_process_behind() -> None:
    compiled, right, children = compile_in_a_fresh_process()
    assert compiled == "compiled by the bind: 1 by the launch: 0"
    assert right == "right: True"
    assert children == "threads: 1 children: []"


def test_a_host_without_a_compiler_is_told_to_install_one() -> None:
    (line,) = compile_in_a_fresh_process(CXX="/nowhere/g++", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    assert line.startswith("Declined: torch.compile has no compiler to call; install g++")
