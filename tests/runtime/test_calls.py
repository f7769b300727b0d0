"""Calls as problems: the right one, with the result that torch gives, or the reason why there is none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem
from tunefarm.runtime.attention_call import AttentionCall
from tunefarm.runtime.calls import Unserved
from tunefarm.runtime.conv_call import ConvCall
from tunefarm.runtime.product_calls import LinearCall, MatmulCall

sizes = st.integers(1, 5)


def tensor(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def stored_as(order, *shape):
    """A tensor of a shape whose axes stand in memory in an order, slowest first."""
    base = tensor(*(shape[axis] for axis in order))
    return base.permute(*(order.index(axis) for axis in range(len(shape))))


@given(lead=st.lists(sizes, max_size=3), n=sizes, k=sizes, bias=st.booleans(), activation=st.sampled_from(Activation))
def test_a_linear_layer_is_a_product_with_its_leading_axes_folded(lead, n, k, bias, activation):
    tensors = [tensor(*lead, k), tensor(n, k), *[tensor(n)] * bias]
    call = LinearCall(activation)
    request = call.problem(tensors)
    rows = torch.Size(lead).numel()
    assert request.problem == MatmulProblem(m=rows, n=n, k=k, transpose_b=True, bias=bias, activation=activation)
    expected = call.by_torch(*tensors)
    assert (request.shape, request.strides) == (expected.shape, expected.contiguous().stride())


def test_transposed_operands_of_a_linear_layer_are_said_to_be():
    request = LinearCall().problem([tensor(8, 4).t(), tensor(8, 6).t()])
    assert request.problem == MatmulProblem(m=4, n=6, k=8, transpose_a=True)


@given(lead=st.lists(sizes, max_size=2), m=sizes, n=sizes, k=sizes, shared=st.booleans())
def test_a_product_folds_its_batch_or_its_rows(lead, m, n, k, shared):
    tensors = [tensor(*lead, m, k), tensor(*([] if shared else lead), k, n)]
    request = MatmulCall().problem(tensors)
    batch = torch.Size(lead).numel()
    rows = {"m": batch * m} if shared or not lead else {"batch": batch, "m": m}
    assert request.problem == MatmulProblem(**rows, n=n, k=k)
    assert request.shape == torch.matmul(*tensors).shape


def test_a_transposed_product_is_said_to_be_with_its_scale():
    call = MatmulCall("gelu", 0.5)
    request = call.problem([stored_as((0, 2, 1), 3, 4, 8), stored_as((0, 2, 1), 3, 8, 6), tensor(6)])
    assert request.problem == MatmulProblem(
        batch=3,
        m=4,
        n=6,
        k=8,
        transpose_a=True,
        transpose_b=True,
        alpha=0.5,
        bias=True,
        activation=Activation.GELU,
    )


@pytest.mark.parametrize("layout", ConvLayout)
@pytest.mark.parametrize("padding", [1, (1, 1), "same"])
def test_a_convolution_is_its_problem_in_either_layout(layout, padding):
    x, w = stored_as(layout.order, 2, 4, 7, 5), stored_as(layout.order, 8, 2, 3, 3)
    call = ConvCall(1, padding, 1, 2)
    request = call.problem([x, w])
    assert request.problem == ConvProblem(
        batch=2,
        in_channels=4,
        height=7,
        width=5,
        out_channels=8,
        kernel=3,
        padding=1,
        groups=2,
        layout=layout,
    )
    assert request.shape == call.by_torch(x, w).shape


@pytest.mark.parametrize("layout", SdpaLayout)
@pytest.mark.parametrize("mask", Mask)
def test_attention_is_its_problem_in_either_layout(layout, mask):
    q, k = stored_as(layout.order, 2, 4, 3, 8), stored_as(layout.order, 2, 2, 5, 8)
    request = AttentionCall(mask, 8**-0.5, enable_gqa=True).problem([q, k, k])
    assert request.problem == SdpaProblem(
        batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_kv=5, head_dim=8, layout=layout, mask=mask
    )


F32 = torch.float32


@pytest.mark.parametrize(
    ("call", "tensors", "reason"),
    [
        (LinearCall(), [tensor(4, 8), tensor(6, 8, dtype=F32)], "dtypes bfloat16, float32"),
        (LinearCall(), [tensor(4, 8, dtype=torch.float64), tensor(6, 8, dtype=torch.float64)], "dtypes float64"),
        (LinearCall(), [tensor(4, 8), tensor(6, 9)], "are no linear layer's"),
        (LinearCall(), [tensor(4, 16)[:, ::2], tensor(6, 8)], "has gaps"),
        (LinearCall(), [tensor(1, 8).expand(4, 8), tensor(6, 8)], "has gaps"),
        (LinearCall(), [tensor(0, 8), tensor(6, 8)], "m: 0 is below 1"),
        (LinearCall(), [tensor(4, 8), tensor(6, 8), tensor(1, 6)], "no vector of 6"),
        (LinearCall(), [tensor(4, 8), torch.empty(6, 8, dtype=torch.bfloat16)], "more than one device"),
        (MatmulCall(), [tensor(8), tensor(8, 6)], "no product of matrices"),
        (MatmulCall(), [tensor(3, 4, 8), tensor(1, 8, 6)], "would be broadcast"),
        (MatmulCall(alpha=0.0), [tensor(4, 8), tensor(8, 6)], "leaves nothing"),
        (ConvCall(), [tensor(4, 5, 5), tensor(8, 4, 3, 3)], "no convolution of a batch"),
        (ConvCall(), [stored_as((0, 2, 3, 1), 2, 4, 5, 5), tensor(8, 4, 3, 3)], "not both contiguous"),
        (ConvCall(padding="same"), [tensor(1, 4, 5, 5), tensor(8, 4, 2, 2)], "not the same on both sides"),
        (AttentionCall(), [tensor(1, 4, 3, 8), tensor(1, 2, 3, 8), tensor(1, 2, 3, 8)], "enable_gqa is not set"),
        (AttentionCall(scale=1.0), [tensor(1, 4, 3, 8)] * 3, "scale 1.0"),
        (AttentionCall(), [tensor(1, 4, 3, 8), tensor(1, 4, 3, 8), tensor(1, 4, 3, 16)], "one head size"),
        (AttentionCall(), [tensor(1, 4, 3, 10)] * 3, "10 is not a multiple of 8"),
        (AttentionCall(), [tensor(1, 4, 3, 8), tensor(1, 4, 6, 8)[:, :, :3], tensor(1, 4, 3, 8)], "not all contiguous"),
    ],
)
def test_what_no_problem_describes_says_what_is_in_the_way(call, tensors, reason):
    with pytest.raises(Unserved, match=reason):
        call.problem(tensors)
