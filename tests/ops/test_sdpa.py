from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.strategies import sdpas
from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.ops.sdpa import Mask, Sdpa, SdpaLayout, SdpaProblem

CPU = torch.device("cpu")


def hidden(problem: SdpaProblem) -> torch.Tensor:
    """Keys that are masked out, in the words of cuDNN's own tests: triangles of the score matrix."""
    s_q, s_kv = problem.seq_q, problem.seq_kv
    shift = s_kv - s_q if problem.mask is Mask.CAUSAL_BOTTOM_RIGHT else 0
    masked = torch.zeros(s_q, s_kv, dtype=torch.bool)
    if problem.mask is not Mask.NONE:
        masked |= torch.ones(s_q, s_kv, dtype=torch.bool).triu(diagonal=1 + shift)
    if problem.window:
        masked |= torch.ones(s_q, s_kv, dtype=torch.bool).tril(diagonal=shift - problem.window)
    return masked


@settings(deadline=None, max_examples=100)
@given(sdpas())
def test_the_reference_is_softmax_attention_under_the_mask(problem: SdpaProblem) -> None:
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    group = problem.heads_q // problem.heads_kv
    q, k, v = (inputs[name].double() for name in "qkv")
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / problem.head_dim**0.5
    scores = scores.masked_fill(hidden(problem), -torch.inf)
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
    outputs = Sdpa().reference(problem, inputs)
    torch.testing.assert_close(outputs["o"], torch.einsum("bhqk,bhkd->bhqd", weights, v), rtol=1e-10, atol=1e-10)
    if problem.stats:
        sums = scores.exp().sum(dim=-1, keepdim=True).log()
        torch.testing.assert_close(outputs["stats"], sums, rtol=1e-10, atol=1e-10)


@given(sdpas())
def test_masked_work_is_left_out_of_the_flops(problem: SdpaProblem) -> None:
    seen = int((~hidden(problem)).sum())
    assert problem.flops == 4 * problem.batch * problem.heads_q * problem.head_dim * seen


def test_the_reference_does_not_depend_on_how_many_rows_it_takes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SdpaProblem(heads_q=2, seq_q=7, head_dim=8, mask=Mask.CAUSAL, window=3, stats=True)
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    whole = Sdpa().reference(problem, inputs)
    monkeypatch.setattr("tunefarm.ops.sdpa.REFERENCE_SCORES", 15)
    by_rows = Sdpa().reference(problem, inputs)
    for name, expected in whole.items():
        torch.testing.assert_close(by_rows[name], expected, rtol=1e-14, atol=1e-14)


def test_causal_flops_are_those_of_the_lower_triangle() -> None:
    square = SdpaProblem(batch=2, heads_q=3, seq_q=1024, head_dim=64, mask=Mask.CAUSAL)
    assert square.flops == 4 * 2 * 3 * 64 * (1024 * 1025 // 2)
    window = SdpaProblem(heads_q=1, seq_q=1024, head_dim=8, mask=Mask.CAUSAL, window=128)
    assert window.flops == 4 * 8 * (128 * 129 // 2 + (1024 - 128) * 128)


def test_a_window_of_w_leaves_the_last_w_keys_the_own_one_among_them() -> None:
    problem = SdpaProblem(heads_q=1, seq_q=5, head_dim=8, mask=Mask.CAUSAL, window=2)
    seen = problem.band.seen(0, 5, CPU)
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_a_window_without_causal_mask_leaves_later_keys() -> None:
    problem = SdpaProblem(heads_q=1, seq_q=3, seq_kv=4, head_dim=8, window=1)
    assert problem.band.seen(0, 3, CPU).int().tolist() == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]


def test_masks_of_unequal_sequences_differ_by_their_alignment() -> None:
    def seen(mask: Mask, window: int = 0) -> list[list[int]]:
        problem = SdpaProblem(heads_q=1, seq_q=2, seq_kv=4, head_dim=8, mask=mask, window=window)
        return problem.band.seen(0, 2, CPU).int().tolist()

    assert seen(Mask.CAUSAL) == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert seen(Mask.CAUSAL_BOTTOM_RIGHT) == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert seen(Mask.CAUSAL_BOTTOM_RIGHT, window=2) == [[0, 1, 1, 0], [0, 0, 1, 1]]


def test_a_query_that_sees_no_key_gets_zeros_and_minus_infinity() -> None:
    problem = SdpaProblem(heads_q=1, seq_q=6, seq_kv=2, head_dim=8, mask=Mask.CAUSAL, window=2, stats=True)
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    for outputs in (Sdpa().reference(problem, inputs), Sdpa().baselines(problem)[0].run(inputs)):
        assert outputs["o"][0, 0, 3:].abs().max() == 0
        assert outputs["stats"][0, 0, 3:].tolist() == [[-torch.inf]] * 3
        assert outputs["stats"][0, 0, :3].isfinite().all()


def test_a_decoding_query_sees_its_whole_cache() -> None:
    problem = SdpaProblem(batch=2, heads_q=4, heads_kv=1, seq_q=1, seq_kv=9, head_dim=8, mask=Mask.CAUSAL_BOTTOM_RIGHT)
    unmasked = SdpaProblem(batch=2, heads_q=4, heads_kv=1, seq_q=1, seq_kv=9, head_dim=8)
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    assert torch.equal(Sdpa().reference(problem, inputs)["o"], Sdpa().reference(unmasked, inputs)["o"])
    assert problem.flops == unmasked.flops


def test_heads_and_keys_default_to_those_of_the_queries() -> None:
    short = SdpaProblem(heads_q=4, seq_q=8, head_dim=8)
    spelt = SdpaProblem(heads_q=4, heads_kv=4, seq_q=8, seq_kv=8, head_dim=8)
    assert (short, short.key) == (spelt, spelt.key)


def test_layouts_are_a_matter_of_strides() -> None:
    def strides(layout: SdpaLayout) -> list[tuple[int, ...]]:
        shape: dict[str, Any] = {"batch": 2, "heads_q": 4, "heads_kv": 2, "seq_q": 8, "seq_kv": 16, "head_dim": 8}
        return [t.strides for t in SdpaProblem(**shape, layout=layout, stats=True).tensors]

    assert strides(SdpaLayout.BHSD) == [(256, 64, 8, 1), *[(256, 128, 8, 1)] * 2, (256, 64, 8, 1), (32, 8, 1, 1)]
    assert strides(SdpaLayout.BSHD) == [(256, 8, 32, 1), *[(256, 8, 16, 1)] * 2, (256, 8, 32, 1), (32, 8, 1, 1)]


def test_uids_never_move() -> None:
    problem = SdpaProblem(heads_q=4, seq_q=8, head_dim=8, stats=True)
    assert {t.name: t.uid for t in problem.tensors} == {"q": 1, "k": 2, "v": 3, "o": 4, "stats": 5}


def test_keys_that_no_query_sees_need_not_be_read() -> None:
    shape: dict[str, Any] = {"heads_q": 4, "heads_kv": 2, "seq_q": 1, "seq_kv": 64, "head_dim": 8}
    whole = SdpaProblem(**shape, mask=Mask.CAUSAL_BOTTOM_RIGHT)
    window = SdpaProblem(**shape, mask=Mask.CAUSAL_BOTTOM_RIGHT, window=16)
    assert whole.bytes_moved == 2 * (2 * 4 * 8 + 2 * 2 * 64 * 8)
    assert window.bytes_moved == 2 * (2 * 4 * 8 + 2 * 2 * 16 * 8)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("heads_kv: 3 does not divide heads_q, which is 4", {"heads_kv": 3}),
        ("head_dim: 12 is not a multiple of 8", {"head_dim": 12}),
        ("seq_q: 8 is above seq_kv, which is 4", {"seq_kv": 4, "mask": Mask.CAUSAL_BOTTOM_RIGHT}),
    ],
)
def test_contradictions_are_refused_by_name(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidProblem, match=message):
        SdpaProblem(**({"heads_q": 4, "seq_q": 8, "head_dim": 8} | options))


def offered(**options: Any) -> set[str]:
    problem = SdpaProblem(**({"heads_q": 4, "seq_q": 8, "head_dim": 8} | options))
    return {b.name for b in Sdpa().baselines(problem)} - {"eager", "compile"}


def test_backends_race_where_torch_lets_them() -> None:
    every = {"sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math"}
    assert offered() == offered(mask=Mask.CAUSAL) == offered(seq_kv=16, mask=Mask.CAUSAL_BOTTOM_RIGHT) == every
    assert offered(seq_kv=16, mask=Mask.CAUSAL) == offered(window=2) == every - {"sdpa-flash"}
    assert offered(dtype=DType.FLOAT32) == {"sdpa-efficient", "sdpa-math"}
    assert offered(heads_kv=2) == every - {"sdpa-efficient"}
    assert offered(batch=16, seq_q=4096) == every - {"sdpa-math"}
    assert offered(head_dim=264) == every - {"sdpa-flash"}
    assert offered(stats=True) == set()


@pytest.mark.parametrize("mask", Mask)
@pytest.mark.parametrize("name", ["sdpa-flash", "sdpa-math"])
def test_a_backend_agrees_with_the_reference(name: str, mask: Mask) -> None:
    problem = SdpaProblem(batch=2, heads_q=4, heads_kv=2, seq_q=8, head_dim=16, mask=mask, layout=SdpaLayout.BSHD)
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    (baseline,) = (b for b in Sdpa().baselines(problem) if b.name == name)
    expected = Sdpa().reference(problem, inputs)["o"]
    torch.testing.assert_close(baseline.run(inputs)["o"].double(), expected, rtol=0, atol=8 * problem.dtype.roundoff)


@pytest.mark.filterwarnings("ignore")
def test_a_backend_that_the_device_lacks_raises() -> None:
    problem = SdpaProblem(heads_q=4, seq_q=8, head_dim=16)
    (cudnn,) = (b for b in Sdpa().baselines(problem) if b.name == "sdpa-cudnn")
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    with pytest.raises(RuntimeError, match="backend"):
        cudnn.run(inputs)


@torch.no_grad()
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seq_kv", [8, 12])
@pytest.mark.parametrize("mask", Mask)
def test_a_backend_s_own_operator_gives_the_same_bits(mask: Mask, seq_kv: int, grouped: bool) -> None:
    heads_kv = 2 if grouped else 4
    problem = SdpaProblem(batch=2, heads_q=4, heads_kv=heads_kv, seq_q=8, seq_kv=seq_kv, head_dim=16, mask=mask)
    inputs = Sdpa().make_inputs(problem, CPU, 0)
    direct = {b.name: b for b in Sdpa().baselines(problem) if b.direct}
    for name in direct.keys() & {"sdpa-flash", "sdpa-math"}:
        baseline = direct[name]
        expected = baseline.run(inputs)["o"]
        assert torch.equal(baseline.direct(inputs)["o"], expected)
        assert baseline.direct(inputs)["o"].stride() == expected.stride()


def test_masks_that_no_operator_knows_are_left_to_torch_s_function() -> None:
    def with_operator(**options: Any) -> set[str]:
        problem = SdpaProblem(**({"heads_q": 4, "seq_q": 8, "seq_kv": 16, "head_dim": 8} | options))
        return {b.name for b in Sdpa().baselines(problem) if b.direct}

    assert with_operator() == {"sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math"}
    assert with_operator(mask=Mask.CAUSAL) == {"sdpa-efficient", "sdpa-cudnn", "sdpa-math"}
    assert with_operator(mask=Mask.CAUSAL_BOTTOM_RIGHT) == with_operator(window=2) == set()


@pytest.mark.parametrize("mask", Mask)
def test_every_operator_takes_its_arguments_as_they_are_given(mask: Mask) -> None:
    """On a GPU that is not there: torch's own shape functions check types and order."""
    problem = SdpaProblem(batch=2, heads_q=4, seq_q=128, head_dim=64, mask=mask)
    with FakeTensorMode():
        inputs = {name: torch.empty(2, 4, 128, 64, dtype=torch.bfloat16, device="cuda") for name in "qkv"}
        for baseline in Sdpa().baselines(problem):
            if baseline.direct:
                o = baseline.direct(inputs)["o"]
                assert (o.shape, o.dtype, o.device.type) == (inputs["q"].shape, torch.bfloat16, "cuda")
