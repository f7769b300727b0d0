"""Hypothesis strategies of the words: problems, candidates, plans, trials and what belongs to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from tunefarm.model.candidate import NUMERICAL_NOTES, Candidate, Plan, Proposal
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.problem import Problem, Role, TensorSpec, option
from tunefarm.model.target import Target
from tunefarm.model.trial import (
    Block,
    Check,
    Measurement,
    Outcome,
    OutputError,
    Stage,
    Standing,
    Status,
    Trial,
    Verdict,
)


class Fill(StrEnum):
    """An option of the toy problem that is an enum, as many of the real ones are."""

    ZEROS = "zeros"
    ONES = "ones"


@dataclass(frozen=True)
class Toy(Problem):
    """The smallest problem: y = scale * x, with one field of each kind that problems may have."""

    op = "toy"

    n: int = option("elements", low=1, high=2**20)
    dtype: DType = DType.BFLOAT16
    scale: float = option("factor", default=1.0)
    fill: Fill = Fill.ZEROS
    in_place: bool = option("y is x", default=False)

    def check(self) -> None:
        """Every combination is a problem."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(uid, name, role, (self.n,), (1,), self.dtype)
            for uid, name, role in ((1, "x", Role.INPUT), (2, "y", Role.OUTPUT))
        )

    @property
    def label(self) -> str:
        return f"toy {self.n} {self.dtype}"

    @property
    def structure(self) -> str:
        return f"toy {self.dtype} {self.fill} {self.in_place}"

    @property
    def flops(self) -> int:
        return self.n


def toy_from_dict(op: str, payload: Mapping[str, Any]) -> Problem:
    """`tunefarm.ops.problem_from_dict` for a world that has toys alone."""
    if op != Toy.op:
        raise InvalidProblem("op", f"no operation named {op!r}")
    return Toy.from_dict(payload)


texts = st.text(max_size=20)
keys = st.text("0123456789abcdef", min_size=20, max_size=20)
sizes = st.integers(0, 2**40)
times = st.floats(0, 1e9)
errors = st.floats(allow_nan=False)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive

problems = st.builds(
    Toy,
    n=st.integers(1, 2**20),
    dtype=st.sampled_from(DType),
    scale=st.floats(allow_nan=False, allow_infinity=False),
    fill=st.sampled_from(Fill),
    in_place=st.booleans(),
)
knobs = st.dictionaries(st.text(min_size=1, max_size=12), st.integers(-(2**63), 2**63 - 1), max_size=4).map(
    lambda chosen: tuple(sorted(chosen.items()))
)
candidates = st.builds(
    Candidate,
    engine=st.sampled_from(["cudnn", "torch"]),
    name=texts,
    engine_id=st.none() | st.integers(0, 200),
    knobs=knobs,
    dynamic=st.booleans(),
    replayable=st.booleans(),
    proposed_by=st.sampled_from(["A", "B", "FALLBACK", "torch"]),
    rank=st.integers(0, 100),
    notes=st.lists(st.sampled_from(NUMERICAL_NOTES), unique=True).map(tuple),
)
plans = st.builds(
    Plan, candidate=candidates, blob=st.binary(max_size=300), workspace_bytes=sizes, build_ms=times, knobs=knobs
)
proposals = st.builds(
    Proposal,
    engine=st.sampled_from(["cudnn", "torch"]),
    candidates=st.lists(candidates, max_size=3).map(tuple),
    refusal=st.none() | texts,
)
protocols = st.builds(
    Protocol,
    cache=st.sampled_from(Cache),
    max_workspace=st.none() | sizes,
    max_rounds=st.integers(1, 1000),
    seed=st.integers(0, 2**31 - 1),
)
output_errors = st.builds(OutputError, name=texts, l2=errors, block=errors, element=errors, gain=errors)
verdicts = st.builds(
    Verdict,
    right=st.booleans(),
    reason=texts,
    outputs=st.lists(output_errors, max_size=2).map(tuple),
    deterministic=st.none() | st.booleans(),
    repeats=st.none() | sizes,
    checks=st.sets(st.sampled_from(Check)).map(lambda passed: tuple(check for check in Check if check in passed)),
)
blocks = st.builds(Block, round=st.integers(-1, 2000), launches=st.integers(1, 10**6), us=times)
measurements = st.builds(
    Measurement,
    time_us=times,
    low_us=times,
    high_us=times,
    method=st.sampled_from(["graph", "events", "wall"]),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    load_ms=times,
    first_call_ms=times,
    eager_us=st.none() | times,
    replay_us=st.none() | times,
)
outcomes = st.builds(
    Outcome,
    candidate=candidates,
    status=st.sampled_from(Status),
    stage=st.sampled_from(Stage),
    reason=texts,
    signal=st.none() | texts,
    verdict=st.none() | verdicts,
    measurement=st.none() | measurements,
    standing=st.none() | st.sampled_from(Standing),
    why=texts,
)
trials = st.builds(
    Trial,
    sweep=texts,
    job=texts,
    name=texts,
    problem=problems,
    target=keys,
    protocol=protocols,
    outcome=outcomes,
    finished_at=moments,
    worker=texts,
    plan_digest=st.none() | texts,
    plan_bytes=st.none() | sizes,
    workspace_bytes=st.none() | sizes,
    build_ms=st.none() | times,
    resolved_knobs=knobs,
)
targets = st.builds(
    Target,
    kind=st.sampled_from(["cuda", "cpu"]),
    device=texts,
    compute_capability=st.sampled_from(["", "9.0", "10.0"]),
    cudnn=texts,
    cudnn_frontend=texts,
    torch=texts,
    driver_cuda=texts,
    profile=st.sampled_from(["", '{"deviceVer":900,"multiProcessorCount":132,"smClockRateKHz":1980000}']),
)
