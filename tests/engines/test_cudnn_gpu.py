"""Plans of cuDNN from proposal to result, on a GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import pytest
import torch

from tests.engines.problems import ALL, MATMUL, MATMUL_AMAX, MATMUL_SCALED, SDPA
from tunefarm.engines.cudnn import CudnnEngine
from tunefarm.farm.isolation import Child, Emit
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.errors import Declined, UsageError
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of

pytestmark = pytest.mark.gpu

BOUND = 0.02
"""Relative error of a whole output that these sizes stay under in bfloat16: a wrong plan is off by far more."""
PYTHON_ENGINES = 20_000
"""Ids from here on are the frontend's python engines."""


@pytest.fixture(scope="module")
def engine() -> CudnnEngine:
    return CudnnEngine(None)


def inputs_of(problem: Problem) -> dict[str, torch.Tensor]:
    return operation_of(problem).make_inputs(problem, torch.device("cuda", torch.cuda.current_device()), seed=1)


def outputs_of(problem: Problem) -> dict[str, torch.Tensor]:
    """Outputs full of NaN: what is not written shows."""
    outputs = {}
    for spec in problem.outputs:
        storage = torch.full((spec.span,), torch.nan, dtype=getattr(torch, spec.dtype), device="cuda")
        outputs[spec.name] = storage.as_strided(spec.shape, spec.strides)
    return outputs


def workspace_of(size: int) -> torch.Tensor | None:
    return torch.zeros(size, dtype=torch.uint8, device="cuda") if size else None


def error_of(problem: Problem, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]) -> float:
    """The largest relative error of an output, as a whole, against the reference."""
    torch.cuda.synchronize()
    reference = operation_of(problem).reference(problem, inputs)
    errors = []
    for name, want in reference.items():
        off = torch.linalg.vector_norm(outputs[name].double() - want) / torch.linalg.vector_norm(want)
        errors.append(float(off) if torch.isfinite(off) else float("inf"))
    return max(errors)


def run(engine: CudnnEngine, problem: Problem, plan: Plan) -> float:
    """The error of one launch of a plan."""
    executable = engine.load(problem, plan)
    inputs, outputs = inputs_of(problem), outputs_of(problem)
    executable.bind(inputs, outputs, workspace_of(executable.workspace_bytes))()
    return error_of(problem, inputs, outputs)


def first_of_each_engine(engine: CudnnEngine, problem: Problem) -> list[Candidate]:
    proposal = engine.propose(problem, Search())
    assert proposal.refusal is None
    return list({c.engine_id: c for c in reversed(proposal.candidates)}.values())


def default_plan(engine: CudnnEngine, problem: Problem) -> Plan:
    """The plan of the backend that the heuristic puts first."""
    candidates = engine.propose(problem, Search()).candidates
    return engine.build(problem, next(c for c in candidates if (c.engine_id or 0) < PYTHON_ENGINES))


@pytest.mark.parametrize("problem", ALL.values(), ids=ALL)
def test_what_is_proposed_builds_loads_and_computes_the_operation(engine: CudnnEngine, problem: Problem) -> None:
    right = 0
    for candidate in first_of_each_engine(engine, problem):
        try:
            error = run(engine, problem, engine.build(problem, candidate))
        except Declined:
            continue
        assert error < BOUND, candidate.label
        right += 1
    assert right > 0


def test_a_launch_is_replayed_from_a_cuda_graph(engine: CudnnEngine) -> None:
    for problem in (MATMUL, MATMUL_AMAX, SDPA):
        executable = engine.load(problem, default_plan(engine, problem))
        inputs, outputs = inputs_of(problem), outputs_of(problem)
        launch = executable.bind(inputs, outputs, workspace_of(executable.workspace_bytes))
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        for output in outputs.values():
            output.fill_(torch.nan)
        graph.replay()
        assert error_of(problem, inputs, outputs) < BOUND
        launch()  # back on the ordinary stream
        assert error_of(problem, inputs, outputs) < BOUND


def test_a_launch_goes_to_the_stream_that_is_current(engine: CudnnEngine) -> None:
    executable = engine.load(MATMUL, default_plan(engine, MATMUL))
    inputs, outputs = inputs_of(MATMUL), outputs_of(MATMUL)
    launch = executable.bind(inputs, outputs, workspace_of(executable.workspace_bytes))
    launch()
    outputs["c"].fill_(torch.nan)
    assert torch.isnan(outputs["c"]).all()  # all kernels are loaded now: loading may wait for the whole device
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(500_000_000)  # type: ignore[no-untyped-call]
        launch()
    assert torch.isnan(outputs["c"]).all(), "the launch waits behind what its stream is at"
    assert not stream.query()
    stream.synchronize()
    assert error_of(MATMUL, inputs, outputs) < BOUND


def test_a_scalar_is_taken_by_value_at_each_launch(engine: CudnnEngine) -> None:
    executable = engine.load(MATMUL_SCALED, default_plan(engine, MATMUL_SCALED))
    inputs, outputs = inputs_of(MATMUL_SCALED), outputs_of(MATMUL_SCALED)
    launch = executable.bind(inputs, outputs, workspace_of(executable.workspace_bytes))
    for alpha in (0.5, -3.0):
        inputs["alpha"].fill_(alpha)
        launch()
        assert error_of(MATMUL_SCALED, inputs, outputs) < BOUND, alpha


def test_an_output_that_partial_results_are_combined_into_starts_from_zero_each_time(engine: CudnnEngine) -> None:
    executable = engine.load(MATMUL_AMAX, default_plan(engine, MATMUL_AMAX))
    inputs, outputs = inputs_of(MATMUL_AMAX), outputs_of(MATMUL_AMAX)
    launch = executable.bind(inputs, outputs, workspace_of(executable.workspace_bytes))
    launch()
    inputs["a"].mul_(0.01)
    inputs["bias"].mul_(0.01)
    launch()
    assert error_of(MATMUL_AMAX, inputs, outputs) < BOUND


@dataclass(frozen=True)
class LoadAndRun:
    """Runs plans that another process built: the error of each."""

    plans: tuple[tuple[Problem, Plan], ...]

    def __call__(self, _emit: Emit) -> list[float]:
        engine = CudnnEngine(None)
        return [run(engine, problem, plan) for problem, plan in self.plans]


def test_plans_run_in_a_fresh_process(engine: CudnnEngine) -> None:
    plans = tuple((problem, default_plan(engine, problem)) for problem in ALL.values())
    child = Child()
    try:
        errors = child.run(LoadAndRun(plans), deadline_s=120)
    finally:
        child.stop()
    assert max(errors) < BOUND


def test_a_built_plan_is_loaded_as_what_its_candidate_says_or_not_at_all(engine: CudnnEngine) -> None:
    plan = default_plan(engine, MATMUL)
    other = replace(plan.candidate, name="eng99", engine_id=99)
    with pytest.raises(Declined, match="holds engine"):
        engine.load(MATMUL, replace(plan, candidate=other))
    with pytest.raises(Declined):
        engine.load(MATMUL, replace(plan, blob=plan.blob[: len(plan.blob) * 3 // 4]))


def test_what_is_bound_is_checked(engine: CudnnEngine) -> None:
    executable = engine.load(SDPA, default_plan(engine, SDPA))
    inputs, outputs = inputs_of(SDPA), outputs_of(SDPA)
    with pytest.raises(UsageError, match="tensor q is float16"):
        executable.bind({**inputs, "q": inputs["q"].half()}, outputs, workspace_of(executable.workspace_bytes))
    with pytest.raises(UsageError, match="tensor q is on cpu"):
        executable.bind({**inputs, "q": inputs["q"].cpu()}, outputs, workspace_of(executable.workspace_bytes))
    if executable.workspace_bytes:
        with pytest.raises(UsageError, match="the workspace has 0 bytes"):
            executable.bind(inputs, outputs, None)


def test_a_handle_is_kept_a_thread_and_shared_by_none(engine: CudnnEngine) -> None:
    others = []
    thread = threading.Thread(target=lambda: others.extend([engine._handle(), engine._handle()]))
    thread.start()
    thread.join()
    assert engine._handle() is engine._handle()
    assert others[0] is others[1]
    assert others[0] is not engine._handle()


def test_dynamic_candidates_compute_every_shape_of_their_structure(engine: CudnnEngine) -> None:
    larger = replace(MATMUL, m=768, n=256)
    for problem in (MATMUL, larger):
        dynamic = [c for c in engine.propose(problem, Search(dynamic=True)).candidates if c.dynamic]
        assert dynamic
        assert run(engine, problem, engine.build(problem, dynamic[0])) < BOUND


def test_an_unlisted_candidate_is_made_from_its_knobs(engine: CudnnEngine) -> None:
    listed = engine.propose(MATMUL, Search()).candidates
    donor = next(c for c in listed if dict(c.knobs).keys() == {"KERNEL_CFG"})
    taken = {dict(c.knobs).get("KERNEL_CFG") for c in listed if c.engine_id == donor.engine_id}
    free = next(value for value in range(40) if value not in taken)
    number = donor.name.rpartition("=")[0]
    unlisted = replace(donor, name=f"{number}={free}", knobs=(("KERNEL_CFG", free),))
    try:
        plan = engine.build(MATMUL, unlisted)
    except Declined as refusal:
        pytest.skip(f"this cuDNN has no {unlisted.label}: {refusal}")
    assert dict(plan.knobs)["KERNEL_CFG"] == free


def test_python_engines_are_candidates_where_the_frontend_offers_them(engine: CudnnEngine) -> None:
    problem = replace(SDPA, stats=False, heads_kv=SDPA.heads_q)
    offered = [c for c in first_of_each_engine(engine, problem) if (c.engine_id or 0) >= PYTHON_ENGINES]
    if not offered:
        pytest.skip("no python engine of the frontend serves this attention here")
    for candidate in offered:
        plan = engine.build(problem, candidate)
        assert plan.blob.startswith(b"CUDNN_FE_PYPLAN")
        assert run(engine, problem, plan) < BOUND
