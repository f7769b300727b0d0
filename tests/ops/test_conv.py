from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional

from tests.ops.formulas import FORMULAS
from tests.ops.strategies import convs
from tunefarm.model.errors import InvalidProblem
from tunefarm.ops.conv import Conv, ConvLayout, ConvProblem

CPU = torch.device("cpu")


def convolution(problem: ConvProblem, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The sum over the filter's places of the shifted, strided image times the filter at that place."""
    p = problem
    x = functional.pad(x, (p.padding_w, p.padding_w, p.padding, p.padding))
    x = x.reshape(p.batch, p.groups, p.in_channels // p.groups, *x.shape[2:])
    w = w.reshape(p.groups, p.out_channels // p.groups, *w.shape[1:])
    y = torch.zeros(p.batch, p.groups, p.out_channels // p.groups, p.out_height, p.out_width, dtype=x.dtype)
    for r in range(p.kernel):
        for s in range(p.kernel_w):
            top, left = r * p.dilation, s * p.dilation_w
            rows = slice(top, top + (p.out_height - 1) * p.stride + 1, p.stride)
            columns = slice(left, left + (p.out_width - 1) * p.stride_w + 1, p.stride_w)
            y += torch.einsum("ngchw,gkc->ngkhw", x[..., rows, columns], w[..., r, s])
    return y.reshape(p.batch, p.out_channels, p.out_height, p.out_width)


@settings(deadline=None, max_examples=80)
@given(convs())
def test_the_reference_is_the_sum_over_the_places_of_the_filter(problem: ConvProblem) -> None:
    inputs = Conv().make_inputs(problem, CPU, 0)
    y = convolution(problem, inputs["x"].double(), inputs["w"].double())
    if problem.bias:
        y = y + inputs["bias"].double()
    y = FORMULAS[problem.activation](y)
    torch.testing.assert_close(Conv().reference(problem, inputs)["y"], y, rtol=1e-12, atol=1e-12)


def test_a_width_follows_its_height_unless_it_is_given() -> None:
    square = ConvProblem(in_channels=4, height=9, out_channels=4, kernel=3, stride=2, padding=1, dilation=2)
    spelt = replace(square, width=9, kernel_w=3, stride_w=2, padding_w=1, dilation_w=2)
    assert square == spelt
    assert square.key == spelt.key
    row = ConvProblem(in_channels=4, height=9, out_channels=4, kernel=3, kernel_w=1, padding=1, padding_w=0)
    assert (row.kernel_w, row.padding_w, row.out_height, row.out_width) == (1, 0, 9, 9)


def test_channels_last_is_a_matter_of_strides() -> None:
    problem = ConvProblem(batch=2, in_channels=4, height=5, width=6, out_channels=8, kernel=3, bias=True)
    inputs = Conv().make_inputs(problem, CPU, 0)
    assert [t.shape for t in problem.tensors] == [(2, 4, 5, 6), (8, 4, 3, 3), (1, 8, 1, 1), (2, 8, 3, 4)]
    assert problem.tensors[0].strides == (120, 1, 24, 4)
    assert inputs["x"].is_contiguous(memory_format=torch.channels_last)
    assert inputs["w"].is_contiguous(memory_format=torch.channels_last)
    y = Conv().baselines(problem)[0].run(inputs)["y"]
    assert y.stride() == problem.tensors[3].strides


def test_nchw_tensors_are_contiguous() -> None:
    problem = ConvProblem(batch=2, in_channels=4, height=5, out_channels=8, kernel=3, layout=ConvLayout.NCHW)
    assert all(tensor.is_contiguous() for tensor in Conv().make_inputs(problem, CPU, 0).values())


def test_uids_never_move() -> None:
    problem = ConvProblem(in_channels=4, height=5, out_channels=8, kernel=3, bias=True)
    assert {t.name: t.uid for t in problem.tensors} == {"x": 1, "w": 2, "bias": 3, "y": 4}
    plain = ConvProblem(in_channels=4, height=5, out_channels=8, kernel=3)
    assert {t.name: t.uid for t in plain.tensors} == {"x": 1, "w": 2, "y": 4}


def test_channels_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="groups: 3 does not divide in_channels, which is 4"):
        ConvProblem(in_channels=4, height=5, out_channels=6, kernel=3, groups=3)
    with pytest.raises(InvalidProblem, match="groups: 4 does not divide out_channels, which is 6"):
        ConvProblem(in_channels=4, height=5, out_channels=6, kernel=3, groups=4)


@pytest.mark.parametrize(
    ("field", "options"),
    [("height", {"width": 9, "height": 4}), ("width", {"width": 4, "height": 9, "padding": 1, "padding_w": 0})],
)
def test_a_kernel_larger_than_the_padded_image_is_refused_with_the_axis(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidProblem, match=f"{field}: 4 and padding of 0 .* the dilated kernel spans 5"):
        ConvProblem(in_channels=4, out_channels=4, kernel=3, dilation=2, **options)


def test_flops_count_each_group_apart() -> None:
    problem = ConvProblem(batch=2, in_channels=8, height=6, out_channels=4, kernel=3, padding=1, stride=2, groups=2)
    # Along each axis 3 outputs meet 3 taps each, of which the first output's first is in the padding.
    assert problem.flops == 2 * (2 * 4) * 4 * (3 * 3 - 1) ** 2


@pytest.mark.parametrize(
    ("options", "pixels"),
    [
        ({"kernel": 1, "stride": 2}, 4 * 4),
        ({"kernel": 3, "stride": 2, "padding": 1}, 8 * 8),
        ({"kernel": 2, "stride": 3}, 6 * 6),
        ({"kernel": 2, "dilation": 4}, 8 * 8),
        ({"kernel": 1, "stride": 8, "stride_w": 1}, 1 * 8),
    ],
)
def test_bytes_count_only_pixels_that_a_window_covers(options: dict[str, int], pixels: int) -> None:
    problem = ConvProblem(batch=2, in_channels=8, height=8, out_channels=4, **options)
    w, y = (next(t for t in problem.tensors if t.name == name) for name in ("w", "y"))
    assert problem.bytes_moved == 2 * (2 * 8 * pixels + w.elements + y.elements)
