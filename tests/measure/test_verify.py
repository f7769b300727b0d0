import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.measure.problems import PROBLEMS
from tunefarm.measure.verify import Judge, worst
from tunefarm.model.dtypes import DType
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Verdict
from tunefarm.ops import OPERATIONS, operation_of
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

CPU = torch.device("cpu")
Outputs = dict[str, torch.Tensor]


def case(problem: Problem) -> tuple[Judge, Outputs, Outputs]:
    """A judge, the inputs, and the right outputs, rounded once."""
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, CPU, 0)
    reference = operation.reference(problem, inputs)
    dtypes = {t.name: getattr(torch, t.dtype) for t in problem.outputs}
    rounded = {name: value.to(dtypes[name]) for name, value in reference.items()}
    return Judge(problem, reference, attention=operation.is_attention), inputs, rounded


def judged(judge: Judge, outputs: Outputs) -> Verdict:
    return judge.verdict(outputs, rounds_between=False)


def blocks_of(matrix: np.ndarray) -> np.ndarray:
    """Sums over 32 x 32 blocks, by plain loops."""
    rows, columns = (range(0, n, 32) for n in matrix.shape)
    return np.array([[matrix[i : i + 32, j : j + 32].sum() for j in columns] for i in rows])


def test_problems_cover_every_family_and_dtype() -> None:
    assert {(p.op, p.outputs[0].dtype) for p in PROBLEMS} == {(op, dtype) for op in OPERATIONS for dtype in DType}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.label)
def test_one_correct_rounding_is_right(problem: Problem) -> None:
    judge, _, rounded = case(problem)
    verdict = judged(judge, rounded)
    assert verdict.right, verdict.reason
    main = verdict.outputs[0]
    assert main.l2 < 0.7 * problem.outputs[0].dtype.roundoff
    assert main.element <= 1 + 1e-6


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.label)
def test_every_torch_baseline_is_right(problem: Problem) -> None:
    judge, inputs, _ = case(problem)
    baselines = [b for b in operation_of(problem).baselines(problem) if not b.compiles]
    judge.allow_for(baselines[0].run(inputs))
    for baseline in baselines:
        try:
            outputs = baseline.run(inputs)
        except RuntimeError:  # a backend that this CPU lacks
            continue
        verdict = judge.verdict(dict(outputs), rounds_between=True)
        assert verdict.right, (baseline.name, verdict.reason)


def edited(problem: Problem, inputs: Outputs, outputs: Outputs, edit: Callable[[torch.Tensor], object]) -> Outputs:
    """The outputs with the main one changed before it is rounded, as the matrix that verdicts see."""
    name = problem.outputs[0].name
    columns = 1 if problem.op == "conv" else -1
    turned = operation_of(problem).reference(problem, inputs)[name].movedim(columns, -1)
    matrix = turned.reshape(-1, turned.shape[-1]).clone()
    edit(matrix)
    return outputs | {name: matrix.view(turned.shape).movedim(-1, columns).to(outputs[name].dtype)}


def one_element(matrix: torch.Tensor) -> None:
    """One of typical size is off by a tenth."""
    flat = matrix.view(-1)
    flat[(flat.abs() - flat.square().mean().sqrt()).abs().argmin()] *= 1.1


def one_tile(matrix: torch.Tensor) -> None:
    """Part of a tile is off by 5 % of what is typical."""
    tile = matrix[:24, :24]
    noise = torch.randn(tile.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tile += 0.05 * matrix.square().mean().sqrt() * noise


def last_row(matrix: torch.Tensor) -> None:
    """The last row repeats the first, or is empty if it is the only one."""
    matrix[-1] = matrix[0] if len(matrix) > 1 else 0


EDITS: dict[str, Callable[[torch.Tensor], object]] = {
    "zeros": lambda m: m.zero_(),
    "half": lambda m: m.view(-1)[m.numel() // 2 :].fill_(math.nan),
    "one NaN": lambda m: m.view(-1)[7].fill_(math.nan),
    "one infinity": lambda m: m.view(-1)[7].fill_(math.inf),
    "one element": one_element,
    "one tile": one_tile,
    "last row": last_row,
    "scaled by 1.002": lambda m: m.mul_(1.002),
    "negated": lambda m: m.neg_(),
}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.label)
@pytest.mark.parametrize("edit", EDITS)
def test_every_defect_is_found_in_every_family_and_dtype(problem: Problem, edit: str) -> None:
    judge, inputs, rounded = case(problem)
    judge.allow_for(operation_of(problem).baselines(problem)[0].run(inputs))
    wrong = edited(problem, inputs, rounded, EDITS[edit])
    for rounds_between in (False, True):
        verdict = judge.verdict(wrong, rounds_between=rounds_between)
        assert not verdict.right
        assert verdict.reason.startswith(f"output {problem.outputs[0].name}: ")


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if len(p.outputs) > 1], ids=lambda p: p.label)
@pytest.mark.parametrize("factor", [0.0, 1.002, math.nan, math.inf, -1.0])
def test_a_wrong_statistic_is_found(problem: Problem, factor: float) -> None:
    judge, inputs, rounded = case(problem)
    judge.allow_for(operation_of(problem).baselines(problem)[0].run(inputs))
    name = problem.outputs[1].name
    verdict = judge.verdict(rounded | {name: rounded[name] * factor}, rounds_between=True)
    assert not verdict.right
    assert name in verdict.reason


def test_minus_infinity_must_stand_where_a_query_sees_no_key() -> None:
    problem = SdpaProblem(heads_q=1, seq_q=96, seq_kv=64, head_dim=32, window=8, stats=True)
    judge, _, rounded = case(problem)
    stats = rounded["stats"]
    assert stats.isinf().any()
    assert judged(judge, rounded).right
    for wrong in (stats.clamp_min(-1e30), stats.abs(), stats.where(stats.isfinite(), torch.nan)):
        verdict = judged(judge, rounded | {"stats": wrong})
        assert not verdict.right
        assert "NaN or infinite" in verdict.reason


def test_overflow_to_infinity_is_right_where_the_reference_overflows() -> None:
    problem = MatmulProblem(m=64, n=64, k=64, dtype=DType.FLOAT16, alpha=30000.0)
    judge, _, rounded = case(problem)
    assert rounded["c"].isinf().any()
    assert judged(judge, rounded).right
    assert not judged(judge, {"c": rounded["c"].clamp(-65504, 65504)}).right


@pytest.mark.parametrize("lost", [64, 8])
def test_a_tile_that_lost_a_few_of_its_products_is_found(lost: int) -> None:
    problem = MatmulProblem(m=256, n=256, k=1024)
    judge, inputs, _ = case(problem)
    a, b = inputs["a"][0].double(), inputs["b"][0].double()
    c = (a @ b)[None]
    c[0, 128:256, 64:128] -= a[128:256, -lost:] @ b[-lost:, 64:128]
    assert not judged(judge, {"c": c.bfloat16()}).right


def test_a_16_bit_accumulator_is_found() -> None:
    problem = MatmulProblem(m=64, n=64, k=1024)
    judge, inputs, _ = case(problem)
    total = torch.zeros(1, 64, 64, dtype=torch.bfloat16)
    for k in range(0, 1024, 16):
        total = (total.float() + inputs["a"][:, :, k : k + 16].float() @ inputs["b"][:, k : k + 16].float()).bfloat16()
    verdict = judged(judge, {"c": total})
    assert not verdict.right
    assert "relative error (L2)" in verdict.reason


def test_the_metrics_are_what_they_say() -> None:
    problem = MatmulProblem(batch=2, m=40, n=70, k=16)
    judge, inputs, _ = case(problem)
    r = operation_of(problem).reference(problem, inputs)["c"].reshape(80, 70).numpy()
    y = torch.from_numpy(r + np.random.default_rng(0).normal(0, 0.01, r.shape)).bfloat16()
    e = y.double().numpy() - r
    rms = math.sqrt((r**2).mean())
    found = judged(judge, {"c": y.view(2, 40, 70)}).outputs[0]
    assert found.l2 == pytest.approx(np.linalg.norm(e) / np.linalg.norm(r))
    assert found.gain == pytest.approx((y.double().numpy() * r).sum() / (r * r).sum() - 1, abs=1e-9)
    assert found.element == pytest.approx((abs(e) / (2.0**-8 * np.maximum(abs(r), rms / 8))).max())
    block = np.sqrt(blocks_of(e**2) / np.maximum(blocks_of(r**2), 1024 * (0.1 * rms) ** 2)).max()
    assert found.block == pytest.approx(block)


def test_large_outputs_are_measured_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SdpaProblem(heads_q=3, seq_q=70, head_dim=32, mask=Mask.CAUSAL)
    judge, _, rounded = case(problem)
    whole = judged(judge, rounded)
    monkeypatch.setattr("tunefarm.measure.verify._CHUNK", 64 * 32)
    parts = judged(case(problem)[0], rounded)
    assert parts.outputs[0].l2 == pytest.approx(whole.outputs[0].l2)
    assert replace(parts.outputs[0], l2=0, gain=0) == replace(whole.outputs[0], l2=0, gain=0)


def test_outputs_that_are_missing_or_of_another_shape_or_type_are_wrong() -> None:
    problem = MatmulProblem(m=8, n=8, k=8)
    judge, _, rounded = case(problem)
    for wrong in ({}, {"c": rounded["c"][0]}, {"c": rounded["c"].float()}):
        assert not judged(judge, wrong).right
    assert judged(judge, {"c": rounded["c"].float()}).reason == (
        "output c: is float32 (1, 8, 8), not bfloat16 (1, 8, 8)"
    )


def test_a_baseline_widens_the_gates_for_what_rounds_in_between_and_only_so_far() -> None:
    problem = MatmulProblem(m=64, n=64, k=64)
    judge, _, rounded = case(problem)
    noise = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(0)) * rounded["c"].float()

    def off(by: float) -> Outputs:
        return {"c": (rounded["c"].float() + by * noise).bfloat16()}

    assert not judge.verdict(off(0.005), rounds_between=True).right
    judge.allow_for(off(0.005))
    assert judge.verdict(off(0.005), rounds_between=True).right
    assert not judge.verdict(off(0.005), rounds_between=False).right
    assert not judge.verdict(off(0.02), rounds_between=True).right
    judge.allow_for({"c": torch.zeros_like(rounded["c"])})  # a broken baseline excuses nothing like itself
    assert not judge.verdict({"c": torch.zeros_like(rounded["c"])}, rounds_between=True).right


def test_a_reference_of_zeros_admits_zeros_alone() -> None:
    problem = ConvProblem(in_channels=4, height=4, out_channels=4, kernel=1)
    zeros = {"y": torch.zeros(1, 4, 4, 4, dtype=torch.float64)}
    judge = Judge(problem, zeros, attention=False)
    assert judged(judge, {"y": zeros["y"].bfloat16()}).right
    assert not judged(judge, {"y": torch.full((1, 4, 4, 4), 1e-3).bfloat16()}).right


def test_the_error_of_a_verdict_is_its_worst_output_s() -> None:
    judge, _, rounded = case(PROBLEMS[0])
    verdict = judged(judge, rounded)
    assert worst(verdict) == max(e.l2 for e in verdict.outputs) == verdict.outputs[0].l2
    assert worst(Verdict(right=False, reason="none")) == math.inf
