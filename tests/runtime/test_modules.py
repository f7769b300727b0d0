"""A model's layers ask the book, and stay what they were otherwise."""

import copy

import pytest
import torch
from torch import nn

from tests.runtime.make import EAGER, book_of, entry
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime import apply
from tunefarm.runtime.ledger import Step

UP = MatmulProblem(m=3, n=16, k=8, transpose_b=True, bias=True)
IMAGES = ConvProblem(
    batch=3, in_channels=4, height=6, out_channels=8, kernel=3, padding=1, layout=ConvLayout.NCHW, bias=True
)


class Subclass(nn.Linear):
    pass


def model():
    torch.manual_seed(0)
    layers = {"up": nn.Linear(8, 16), "own": Subclass(16, 16), "down": nn.Linear(16, 4, bias=False)}
    return nn.Sequential(nn.ModuleDict(layers)["up"], layers["own"], layers["down"]).bfloat16().eval()


@torch.no_grad()
def test_layers_ask_the_book_and_results_stay():
    plain, asked = model(), model()
    book = book_of([entry(UP)])
    coverage = apply(asked, book)
    x = torch.randn(3, 8).bfloat16()
    torch.testing.assert_close(asked(x), plain(x))
    assert book.counters.steps == {Step.SHIPPED: 1, Step.REBUILT: 0, Step.HEURISTIC: 0, Step.TORCH: 1}
    assert [(layer.name, layer.replaced, layer.plans) for layer in coverage.layers] == [
        ("0", True, 1),
        ("1", False, 0),
        ("2", True, 0),
    ]
    assert str(coverage).splitlines() == [
        "2 of 3 layers ask the plan book",
        "  0: linear, 1 plan",
        "  1: linear, it is a Subclass, whose additions would be lost",
        "  2: linear, 0 plans",
    ]


def test_parameters_hooks_and_names_stay():
    plain, asked = model(), model()
    seen = []
    asked[0].register_forward_hook(lambda *_: seen.append("hook"))
    apply(asked, book_of([]))
    assert asked.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(asked[0], nn.Linear)
    asked(torch.randn(3, 8).bfloat16())
    assert seen == ["hook"]


def test_applying_again_takes_another_book():
    asked, first, second = model(), book_of([]), book_of([])
    apply(asked, first)
    apply(asked, second)
    with torch.no_grad():
        asked(torch.randn(3, 8).bfloat16())
    assert (first.counters.calls, second.counters.calls) == (0, 2)


def test_a_copied_model_shares_the_book():
    asked, book = model(), book_of([])
    apply(asked, book)
    with torch.no_grad():
        copy.deepcopy(asked)(torch.randn(3, 8).bfloat16())
    assert book.counters.calls == 2


def test_training_goes_on():
    asked = model()
    apply(asked, book_of([entry(UP)]))
    asked(torch.randn(3, 8).bfloat16()).sum().backward()
    assert all(parameter.grad is not None for parameter in asked.parameters())


@torch.no_grad()
@pytest.mark.parametrize("padding", [1, "same"])
def test_convolutions_ask_too(padding):
    plain = nn.Conv2d(4, 8, 3, padding=padding).bfloat16()
    asked = copy.deepcopy(plain)
    book = book_of([entry(IMAGES)])
    apply(asked, book)
    x = torch.randn(3, 4, 6, 6).bfloat16()
    torch.testing.assert_close(asked(x), plain(x))
    assert book.counters.steps[Step.SHIPPED] == 1


def test_padding_that_plans_do_not_do_is_left_alone():
    coverage = apply(nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), book_of([entry(IMAGES, EAGER)]))
    assert [(layer.replaced, layer.reason) for layer in coverage.layers] == [(False, "it pads in mode reflect")]


@torch.no_grad()
def test_a_model_with_a_book_compiles_whole():
    torch.compiler.reset()
    asked, book = model(), book_of([entry(UP)])
    plain = model()
    apply(asked, book)
    x = torch.randn(3, 8).bfloat16()
    torch.testing.assert_close(torch.compile(asked, fullgraph=True, backend="aot_eager")(x), plain(x))
    assert book.counters.steps[Step.SHIPPED] == 1
