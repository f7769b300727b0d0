"""Laws that hold for every operation family."""

import json
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from tests.ops.strategies import problems
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem, Role
from tunefarm.ops import OPERATIONS, operation_of, problem_from_dict
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import SdpaProblem

CPU = torch.device("cpu")
EXAMPLES: dict[str, Any] = {
    "conv": ConvProblem(in_channels=4, height=9, out_channels=4, kernel=3, padding=1),
    "matmul": MatmulProblem(m=4, n=8, k=16),
    "sdpa": SdpaProblem(heads_q=4, seq_q=8, head_dim=8),
}
SMALL = settings(deadline=None, max_examples=60)


def changes(value: object) -> list[object]:
    """Other values of a field's type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, StrEnum):
        return [other for other in type(value) if other is not value]
    if isinstance(value, int):
        return [value + 1, value * 2, value * 2 + 2, value - 1, 1]
    assert isinstance(value, float)
    return [value + 0.5, -value]


def changed(problem: Problem, field: str) -> list[Problem]:
    """Valid problems that differ from one in a single field."""
    found = []
    for value in changes(getattr(problem, field)):
        try:
            other = replace(problem, **{field: value})
        except InvalidProblem:
            continue
        if getattr(other, field) != getattr(problem, field):
            found.append(other)
    return found


def test_an_example_stands_for_every_family() -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_field_of_every_family_can_change_the_key(name: str) -> None:
    example = EXAMPLES[name]
    for field in fields(example):
        others = changed(example, field.name)
        assert others, f"{name}.{field.name} has no second valid value here"
        for other in others:
            assert other.key != example.key


@SMALL
@given(problems)
def test_problems_that_differ_in_one_field_have_keys_of_their_own(problem: Problem) -> None:
    distinct = {problem, *(other for field in fields(problem) for other in changed(problem, field.name))}
    assert len({p.key for p in distinct}) == len(distinct)


@SMALL
@given(problems)
def test_a_problem_survives_json_and_pickling(problem: Problem) -> None:
    payload = json.loads(json.dumps(problem.to_dict()))
    restored = problem_from_dict(problem.op, payload)
    for copy in (restored, pickle.loads(pickle.dumps(problem))):
        assert copy == problem
        assert copy.key == problem.key
        assert [type(getattr(copy, f.name)) for f in fields(copy)] == [
            type(getattr(problem, f.name)) for f in fields(problem)
        ]


@SMALL
@given(problems)
def test_tensors_come_in_order_of_distinct_uids_and_names(problem: Problem) -> None:
    uids = [t.uid for t in problem.tensors]
    assert uids == sorted(set(uids))
    assert len({t.name for t in problem.tensors}) == len(uids)
    assert all(t.span == t.elements for t in problem.tensors)


@SMALL
@given(problems)
def test_inputs_have_the_shapes_strides_and_types_of_the_specs_and_depend_on_the_seed_alone(problem: Problem) -> None:
    operation = operation_of(problem)
    inputs, again, others = (operation.make_inputs(problem, CPU, seed) for seed in (3, 3, 4))
    assert set(inputs) == {t.name for t in problem.inputs}
    for spec in problem.inputs:
        tensor = inputs[spec.name]
        assert (tuple(tensor.shape), tensor.stride()) == (spec.shape, spec.strides)
        assert str(tensor.dtype) == f"torch.{spec.dtype}"
        assert torch.equal(tensor, again[spec.name])
        if spec.role is not Role.SCALAR and spec.elements >= 8:
            assert not torch.equal(tensor, others[spec.name])


@SMALL
@given(problems)
def test_references_are_float64_and_answer_every_output(problem: Problem) -> None:
    operation = operation_of(problem)
    outputs = operation.reference(problem, operation.make_inputs(problem, CPU, 0))
    assert {name: tuple(t.shape) for name, t in outputs.items()} == {t.name: t.shape for t in problem.outputs}
    assert {t.dtype for t in outputs.values()} == {torch.float64}


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@SMALL
@given(problems)
def test_eager_baselines_agree_with_references(problem: Problem) -> None:
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, CPU, 0)
    expected = operation.reference(problem, inputs)
    eager = operation.baselines(problem)[0]
    assert (eager.name, eager.compiles) == ("eager", False)
    # oneDNN's bfloat16 convolution in groups returns NaN on CPUs for some shapes (torch 2.13).
    with torch.backends.mkldnn.flags(enabled=False):
        outputs = eager.run(inputs)
    # Each step of a user's chain rounds to the type: a few units at the largest value of the chain.
    atol = {dtype: 16 * dtype.roundoff for dtype in DType}
    for spec in problem.outputs:
        actual = outputs[spec.name]
        assert (tuple(actual.shape), str(actual.dtype)) == (spec.shape, f"torch.{spec.dtype}")
        bound = atol[spec.dtype] * max(1.0, float(expected[spec.name].nan_to_num(neginf=0).abs().max()))
        torch.testing.assert_close(actual.double(), expected[spec.name], rtol=0, atol=bound)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_family_offers_eager_first_and_one_compiled_baseline(name: str) -> None:
    baselines = OPERATIONS[name].baselines(EXAMPLES[name])
    assert baselines[0].name == "eager"
    assert [b.name for b in baselines if b.compiles] == ["compile"]
    assert len({b.name for b in baselines}) == len(baselines)


@pytest.mark.parametrize("name", OPERATIONS)
def test_labels_are_short_and_structures_hold_no_sizes(name: str) -> None:
    example = EXAMPLES[name]
    size = {"conv": "height", "matmul": "m", "sdpa": "seq_q"}[name]
    larger = replace(example, **{size: getattr(example, size) + 1})
    assert example.label.startswith(f"{name} ")
    assert len(example.label) < 80
    assert larger.label != example.label
    assert larger.structure == example.structure


@pytest.mark.parametrize("name", OPERATIONS)
def test_structures_differ_where_options_do(name: str) -> None:
    example = EXAMPLES[name]
    for field in fields(example):
        if isinstance(getattr(example, field.name), bool | StrEnum):
            assert all(other.structure != example.structure for other in changed(example, field.name))


@pytest.mark.parametrize("name", OPERATIONS)
def test_sizes_below_their_lowest_are_refused_by_name(name: str) -> None:
    for field in fields(EXAMPLES[name]):
        low = field.metadata["low"]
        if low is not None:
            with pytest.raises(InvalidProblem, match=f"{field.name}: {low - 1} is below {low}"):
                replace(EXAMPLES[name], **{field.name: low - 1})


def test_an_unknown_operation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidProblem, match="op: no operation named 'conv3d'; there are conv, matmul, sdpa"):
        problem_from_dict("conv3d", {})


def test_reading_problems_imports_neither_torch_nor_cudnn() -> None:
    code = "import sys; from tunefarm.ops import OPERATIONS; print([m for m in ('torch', 'cudnn') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
