"""Under torch.compile the book's calls are operators: traced whole, answered by the book."""

import pytest
import torch
from torch.nn import functional

from tests.runtime.make import book_of, entry, inputs_of
from tunefarm.model.errors import UsageError
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem
from tunefarm.runtime.ledger import Step

LINEAR = MatmulProblem(m=6, n=16, k=8, transpose_b=True, bias=True)
CAUSAL = SdpaProblem(heads_q=4, heads_kv=2, seq_q=4, head_dim=8, mask=Mask.CAUSAL, layout=SdpaLayout.BSHD)
IMAGES = ConvProblem(batch=2, in_channels=4, height=6, out_channels=8, kernel=3, layout=ConvLayout.NHWC)
X, W, B = torch.randn(2, 3, 8).bfloat16(), torch.randn(16, 8).bfloat16(), torch.randn(16).bfloat16()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


def compiled(function):
    """Traced whole by dynamo, with the operators' fakes, but without a C++ compiler."""
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@torch.no_grad()
@pytest.mark.parametrize("shipped", [True, False])
def test_every_call_is_traced_whole_and_answered_by_the_book(shipped):
    book = book_of([entry(p) for p in (LINEAR, CAUSAL, IMAGES)] if shipped else [])
    q, k, v = inputs_of(CAUSAL).values()
    x, w = inputs_of(IMAGES).values()

    def model(q, k, v, x, w):
        o = book.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return book.linear(X, W, B), o, book.conv2d(x, w), book.matmul(X, W.t(), alpha=2.0)

    results = compiled(model)(q, k, v, x, w)
    expected = (
        functional.linear(X, W, B),
        functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        functional.conv2d(x, w),
        2 * (X @ W.t()),
    )
    for result, want in zip(results, expected, strict=True):
        torch.testing.assert_close(result, want, rtol=0.02, atol=0.02)
    assert book.counters.steps[Step.SHIPPED] == 3 * shipped
    assert book.counters.calls == 4


@torch.no_grad()
def test_dynamic_shapes_are_traced_once():
    book = book_of([])
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph

    layer = torch.compile(lambda x: book.linear(x, W), fullgraph=True, dynamic=True, backend=backend)
    for m in (2, 3, 5):
        assert layer(X[0, :1].expand(m, 8).contiguous()).shape == (m, 16)
    assert len(graphs) == 1


def test_calls_that_need_gradients_are_traced_as_torchs_own():
    book = book_of([])
    weight = W.clone().requires_grad_()
    compiled(lambda: book.linear(X, weight, activation="gelu"))().sum().backward()
    assert weight.grad is not None
    assert book.counters.calls == 0


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("linear", (X, W, B, "relu")),
        ("linear", (X, W, None, "none")),
        ("matmul", (X, W.t().contiguous(), None, "none", 0.5)),
        ("conv2d", (torch.randn(1, 4, 5, 5), torch.randn(8, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], 1, "none")),
        ("attention", (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), True, None, False)),
        ("attention", (*(torch.randn(1, 4, 2, 8).transpose(1, 2) for _ in range(3)), False, None, False)),
    ],
)
def test_operators_keep_torchs_rules_and_their_fakes_tell_the_truth(name, arguments):
    book = book_of([])
    operator = getattr(torch.ops.tunefarm, name).default
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, (*arguments, book._number), test_utils=checks)


def test_a_compiled_model_whose_book_is_gone_says_so():
    with pytest.raises(UsageError, match="keep the book for as long as the model"):
        torch.ops.tunefarm.linear(X, W, None, "none", 10**9)
