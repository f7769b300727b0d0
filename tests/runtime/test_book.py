"""Calls of a plan book: who answers, what is counted, and that results are torch's."""

import copy
import gc
import logging
import pickle
import threading
import weakref

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from tests.runtime.make import CPU, EAGER, GPU, OTHER_PLAN, PLAN, StandInEngine, book_of, entry, gpu, inputs_of
from tunefarm.model.candidate import Candidate
from tunefarm.model.errors import BundleDamaged, Declined, UsageError
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem
from tunefarm.runtime.ledger import Cause, Step

LINEAR = MatmulProblem(m=6, n=16, k=8, transpose_b=True, bias=True, activation=Activation.RELU)
X, W, B = torch.randn(2, 3, 8).bfloat16(), torch.randn(16, 8).bfloat16(), torch.randn(16).bfloat16()
EXPECTED = functional.relu(functional.linear(X, W, B))


def call(book):
    return book.linear(X, W, B, activation=Activation.RELU)


def causes(book):
    return dict(book.counters.causes)


def test_a_shipped_plan_answers_and_is_counted():
    engine = StandInEngine()
    book = book_of([entry(LINEAR)], engine=engine)
    for _ in range(3):
        torch.testing.assert_close(call(book), EXPECTED)
    assert (engine.launches, len(engine.loaded)) == (3, 1)
    assert book.counters.steps == {Step.SHIPPED: 3, Step.REBUILT: 0, Step.HEURISTIC: 0, Step.TORCH: 0}
    assert causes(book) == {}


def test_nothing_is_read_before_the_first_call():
    book = book_of([entry(LINEAR)])
    book.find(LINEAR, torch.device("cpu"))
    assert book.bundle.read == []


def test_a_problem_where_torch_won_is_torchs_and_counts_as_shipped():
    engine = StandInEngine()
    book = book_of([entry(LINEAR, EAGER)], engine=engine)
    torch.testing.assert_close(call(book), EXPECTED)
    assert (book.counters.steps[Step.SHIPPED], engine.loaded, causes(book)) == (1, [], {})


def test_on_a_cpu_entries_of_a_cpu_are_hits_and_no_engine_is_made():
    book = book_of([entry(LINEAR, EAGER, CPU)], machine=CPU)
    book._shared.make_engine = pytest.fail
    torch.testing.assert_close(call(book), EXPECTED)
    assert book.counters.steps[Step.SHIPPED] == 1


def test_a_variant_of_torch_runs_as_the_bundle_says():
    problem = SdpaProblem(heads_q=2, seq_q=4, head_dim=8, mask=Mask.CAUSAL)
    book = book_of([entry(problem, Candidate("torch", "sdpa-math"))])
    q, k, v = inputs_of(problem).values()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for _ in range(3):  # the first by torch's function, which checks; then by the operator that it ended in
        with torch.no_grad():
            assert torch.equal(book.scaled_dot_product_attention(q, k, v, is_causal=True), expected)
    assert book.counters.steps[Step.SHIPPED] == 3


def test_a_variant_that_torch_refuses_here_becomes_eager_torch():
    problem = SdpaProblem(heads_q=2, seq_q=4, head_dim=8)
    book = book_of([entry(problem, Candidate("torch", "sdpa-cudnn"))])
    q, k, v = inputs_of(problem).values()
    for _ in range(2):
        torch.testing.assert_close(
            book.scaled_dot_product_attention(q, k, v), functional.scaled_dot_product_attention(q, k, v)
        )
    assert (book.counters.steps[Step.TORCH], book.counters.steps[Step.SHIPPED]) == (2, 0)


def test_what_the_bundle_lacks_is_torchs():
    book = book_of([])
    torch.testing.assert_close(call(book), EXPECTED)
    assert causes(book) == {Cause.MISS: 1}
    assert "no entry for this problem" in str(book.explain(LINEAR))


def test_a_plan_of_another_patch_of_cudnn_is_a_miss_with_both_versions():
    book = book_of([entry(LINEAR, target=GPU)], machine=GPU.__class__(**{**GPU.to_dict(), "cudnn": "9.27.1"}))
    torch.testing.assert_close(call(book), EXPECTED)
    story = str(book.explain(LINEAR, torch.device("cpu")))
    assert "it needs cuDNN 9.27.0, here is 9.27.1" in story
    assert "torch eager serves" in story
    assert "1 call answered by torch (no plan)" in story


@pytest.mark.parametrize("on_miss", ["torch", "build"])
def test_calls_build_only_when_asked_to(on_miss):
    engine = StandInEngine([PLAN, OTHER_PLAN])
    book = book_of([entry(LINEAR)], machine=gpu(multiProcessorCount=114), engine=engine, on_miss=on_miss)
    torch.testing.assert_close(call(book), EXPECTED)
    built = on_miss == "build"
    assert engine.built == [PLAN] * built
    assert book.counters.steps[Step.REBUILT] == int(built)


def test_warm_builds_when_asked_and_later_calls_use_what_it_built():
    engine = StandInEngine([PLAN])
    book = book_of([entry(LINEAR)], machine=gpu(multiProcessorCount=114), engine=engine)
    call(book)
    assert book.warm() == {LINEAR: Step.TORCH}
    assert book.warm(build=True) == {LINEAR: Step.REBUILT}
    torch.testing.assert_close(call(book), EXPECTED)
    assert (book.counters.steps[Step.TORCH], book.counters.steps[Step.REBUILT]) == (1, 1)


def test_warm_builds_for_problems_that_the_bundle_lacks_too():
    book = book_of([], engine=StandInEngine([PLAN]))
    call(book)
    assert book.warm([LINEAR], build=True) == {LINEAR: Step.HEURISTIC}
    call(book)
    assert (book.counters.steps[Step.TORCH], book.counters.steps[Step.HEURISTIC]) == (1, 1)


def test_an_activation_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError, match="no activation is named 'silu'; there are none, relu, gelu, swish"):
        book_of([]).linear(X, W, B, activation="silu")


def test_lists_serve_as_pairs():
    book = book_of([])
    x, w = torch.randn(1, 4, 5, 5), torch.randn(8, 4, 3, 3)
    torch.testing.assert_close(book.conv2d(x, w, stride=[2, 1]), functional.conv2d(x, w, stride=[2, 1]))


def test_what_was_verified_on_another_device_only_is_not_rebuilt_unless_cudnn_lists_it():
    engine = StandInEngine([OTHER_PLAN])
    book = book_of([entry(LINEAR)], machine=gpu(multiProcessorCount=114), engine=engine, on_miss="build")
    call(book)
    assert engine.built == [OTHER_PLAN]
    assert book.counters.steps[Step.HEURISTIC] == 1
    assert "cuDNN does not list it here" in str(book.explain(LINEAR))


def test_only_another_frontend_or_driver_lets_a_searched_plan_be_rebuilt():
    engine = StandInEngine([OTHER_PLAN])
    machine = GPU.__class__(**{**GPU.to_dict(), "cudnn_frontend": "1.33.0"})
    book = book_of([entry(LINEAR)], machine=machine, engine=engine, on_miss="build")
    call(book)
    assert engine.built == [PLAN]


def test_a_problem_unknown_to_the_bundle_gets_cudnns_first_choice_when_building():
    engine = StandInEngine([PLAN, OTHER_PLAN])
    book = book_of([], engine=engine, on_miss="build")
    torch.testing.assert_close(call(book), EXPECTED)
    assert (engine.built, book.counters.steps[Step.HEURISTIC]) == ([PLAN], 1)


@pytest.mark.parametrize("damage", [BundleDamaged("the plan is not what was signed"), Declined("ARCH_MISMATCH")])
def test_bytes_that_can_not_be_used_fall_through_with_their_reason(damage):
    engine = StandInEngine([PLAN])
    book = book_of([entry(LINEAR)], engine=engine, damage=damage, on_miss="build")
    torch.testing.assert_close(call(book), EXPECTED)
    assert book.counters.steps[Step.REBUILT] == 1
    assert str(damage) in str(book.explain(LINEAR))
    assert [plan.blob for plan in engine.loaded] == [b"built"]


def test_a_plan_that_raises_when_launched_is_torchs_from_then_on(caplog):
    engine = StandInEngine(raises=RuntimeError("CUDNN_STATUS_EXECUTION_FAILED"))
    book = book_of([entry(LINEAR)], engine=engine)
    for _ in range(3):
        torch.testing.assert_close(call(book), EXPECTED)
    assert book.counters.steps[Step.TORCH] == 3
    assert "EXECUTION_FAILED" in str(book.explain(LINEAR))
    assert caplog.text.count("EXECUTION_FAILED") == 1


def test_no_engine_means_torch_and_the_reason():
    book = book_of([entry(LINEAR)], on_miss="build")

    def no_engine():
        raise Declined("no libcudnn.so.9 was found")

    book._shared.make_engine = no_engine
    torch.testing.assert_close(call(book), EXPECTED)
    assert "no libcudnn.so.9 was found" in str(book.explain(LINEAR))


def test_each_problem_that_falls_through_is_warned_of_once(caplog):
    caplog.set_level(logging.WARNING, "tunefarm.runtime")
    book = book_of([])
    for _ in range(3):
        call(book)
    assert [record.message.count(LINEAR.label) for record in caplog.records] == [1]


def test_tensors_that_need_gradients_are_torchs_and_get_them():
    book = book_of([entry(LINEAR)])
    weight = W.clone().requires_grad_()
    book.linear(X, weight, B, activation="relu").sum().backward()
    assert weight.grad is not None
    with torch.no_grad():
        book.linear(X, weight, B, activation=Activation.RELU)
    assert (causes(book), book.counters.steps[Step.SHIPPED]) == ({Cause.GRADIENT: 1}, 1)


def test_autocast_is_torchs():
    book = book_of([entry(LINEAR)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert book.linear(X.float(), W, B).dtype == torch.bfloat16
    assert causes(book) == {Cause.AUTOCAST: 1}


def test_a_tensor_of_a_class_of_its_own_is_torchs():
    class Own(torch.Tensor):
        pass

    book = book_of([entry(LINEAR)])
    book.linear(X.as_subclass(Own), W, B, activation=Activation.RELU)
    assert causes(book) == {Cause.SUBCLASS: 1}


@pytest.mark.parametrize("operand", ["x", "w", "b"])
def test_an_address_that_plans_can_not_take_is_torchs_while_the_rest_stays_the_plans(operand):
    book = book_of([entry(LINEAR)])
    operands = {"x": X, "w": W, "b": B}
    odd = torch.empty(operands[operand].numel() + 1, dtype=torch.bfloat16)[1:].view(operands[operand].shape)
    odd.copy_(operands[operand])
    torch.testing.assert_close(book.linear(*(operands | {operand: odd}).values(), activation="relu"), EXPECTED)
    call(book)
    assert (causes(book), book.counters.steps[Step.SHIPPED]) == ({Cause.MISALIGNED: 1}, 1)


def test_what_torch_refuses_raises_torchs_own_error():
    book = book_of([])
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        book.linear(X, W.t().contiguous())


def test_workspaces_are_one_for_each_plan_and_keep_their_address():
    engine = StandInEngine(workspace_bytes=64)
    book = book_of([entry(LINEAR, zero_workspace=True)], engine=engine)
    call(book)
    book.linear(X.reshape(6, 8), W, B, activation=Activation.RELU)
    first, second = engine.workspaces
    assert first.data_ptr() == second.data_ptr()
    assert (first.numel(), int(first.sum())) == (64, 0)


def test_matmul_takes_batches_scales_and_transposed_operands():
    problem = MatmulProblem(batch=6, m=4, n=5, k=8, transpose_b=True, alpha=0.5, bias=True)
    book = book_of([entry(problem)])
    a, b, bias = torch.randn(2, 3, 4, 8).bfloat16(), torch.randn(2, 3, 5, 8).bfloat16(), torch.randn(5).bfloat16()
    result = book.matmul(a, b.transpose(-1, -2), bias, alpha=0.5)
    torch.testing.assert_close(result, 0.5 * a @ b.transpose(-1, -2) + bias, rtol=0.02, atol=0.02)
    assert book.counters.steps[Step.SHIPPED] == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_keeps_its_images_layout(layout):
    problem = ConvProblem(
        batch=2,
        in_channels=4,
        height=6,
        out_channels=8,
        kernel=3,
        padding=1,
        bias=True,
        layout=ConvLayout.NHWC if layout is torch.channels_last else ConvLayout.NCHW,
    )
    book = book_of([entry(problem)])
    x = torch.randn(2, 4, 6, 6).bfloat16().to(memory_format=layout)
    w = torch.randn(8, 4, 3, 3).bfloat16().to(memory_format=layout)
    b = torch.randn(8).bfloat16()
    for padding in (1, (1, 1), "same"):
        y = book.conv2d(x, w, b, padding=padding)
        torch.testing.assert_close(y, functional.conv2d(x, w, b, padding=1))
        assert y.is_contiguous(memory_format=layout)
    assert book.counters.steps[Step.SHIPPED] == 3


@pytest.mark.parametrize("layout", SdpaLayout)
@pytest.mark.parametrize("mask", Mask)
def test_attention_takes_both_layouts_and_all_masks(layout, mask):
    problem = SdpaProblem(batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_kv=5, head_dim=8, layout=layout, mask=mask)
    book = book_of([entry(problem)])
    q, k, v = inputs_of(problem).values()
    arguments = {
        "attn_mask": causal_lower_right(3, 5) if mask is Mask.CAUSAL_BOTTOM_RIGHT else None,
        "is_causal": mask is Mask.CAUSAL,
        "enable_gqa": True,
    }
    o = book.scaled_dot_product_attention(q, k, v, **arguments)
    torch.testing.assert_close(o, functional.scaled_dot_product_attention(q, k, v, **arguments))
    assert (o.stride(), book.counters.steps[Step.SHIPPED]) == (problem.outputs[0].strides, 1)


def test_other_masks_and_dropout_are_torchs():
    book = book_of([])
    q = torch.randn(1, 2, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    torch.testing.assert_close(
        book.scaled_dot_product_attention(q, q, q, mask), functional.scaled_dot_product_attention(q, q, q, mask)
    )
    assert book.scaled_dot_product_attention(q, q, q, dropout_p=1.0).abs().sum() == 0
    assert causes(book) == {Cause.UNSERVED: 2}


@pytest.mark.parametrize(
    "problem",
    [
        MatmulProblem(m=4, n=8, k=16, alpha=2.0, amax=True),
        SdpaProblem(heads_q=2, seq_q=4, head_dim=8, stats=True),
        ConvProblem(in_channels=4, height=5, out_channels=8, kernel=3),
    ],
    ids=lambda problem: problem.label,
)
@pytest.mark.parametrize("candidate", [PLAN, EAGER, None])
def test_a_problem_gives_every_output_by_name(problem, candidate):
    book = book_of([entry(problem, candidate)] if candidate else [])
    inputs = inputs_of(problem)
    from tunefarm.ops import operation_of

    expected = operation_of(problem).baselines(problem)[0].run(inputs)
    outputs = book.run(problem, inputs)
    assert outputs.keys() == {spec.name for spec in problem.outputs}
    for name, output in outputs.items():
        torch.testing.assert_close(output, expected[name])
    assert book.counters.steps[Step.SHIPPED if candidate else Step.TORCH] == 1


def test_an_input_that_is_not_the_problems_is_refused_with_both_forms():
    book = book_of([entry(LINEAR)])
    inputs = dict(inputs_of(LINEAR))
    with pytest.raises(UsageError, match=r"wants a as bfloat16 \(1, 6, 8\), and it is bfloat16 \(1, 5, 8\)"):
        book.run(LINEAR, inputs | {"a": inputs["a"][:, :5]})
    del inputs["bias"]
    with pytest.raises(UsageError, match="needs the input 'bias'; its inputs are a, b, bias"):
        book.run(LINEAR, inputs)


def test_an_input_with_other_strides_is_torchs():
    book = book_of([entry(LINEAR)])
    inputs = dict(inputs_of(LINEAR))
    expected = book.run(LINEAR, inputs)["c"]
    inputs["b"] = inputs["b"].contiguous()
    torch.testing.assert_close(book.run(LINEAR, inputs)["c"], expected)
    assert causes(book) == {Cause.UNSERVED: 1}


def test_threads_load_for_themselves_and_all_calls_are_counted():
    engines = []

    def new_engine():
        engines.append(StandInEngine())
        return engines[-1]

    small = MatmulProblem(m=1, n=16, k=8, transpose_b=True)
    book = book_of([entry(LINEAR), entry(small)])
    book._shared.make_engine = new_engine
    wrong = []

    def work():
        for _ in range(334):  # three calls each
            if not torch.equal(call(book), EXPECTED):
                wrong.append("linear")
            if not torch.equal(book.linear(X[0, :1], W), functional.linear(X[0, :1], W)):
                wrong.append("small")
            book.linear(X[0, :2], W)  # a miss

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [len(engine.loaded) for engine in engines] == [2] * 8
    assert book.counters.steps == {Step.SHIPPED: 8 * 668, Step.REBUILT: 0, Step.HEURISTIC: 0, Step.TORCH: 8 * 334}


def test_misses_become_a_job_of_what_was_called_most(tmp_path):
    from tunefarm.jobfile import read_job

    shipped = MatmulProblem(m=1, n=16, k=8, transpose_b=True)
    book = book_of([entry(shipped)])
    path = tmp_path / "misses.yaml"
    assert (book.misses(path), path.exists()) == (0, False)
    book.linear(X[0, :1], W)
    book.linear(X[0, :2], W)
    for _ in range(2):
        call(book)
    assert book.misses(path) == 2
    assert [task.problem for task in read_job(path).tasks] == [LINEAR, MatmulProblem(m=2, n=16, k=8, transpose_b=True)]
    assert [task.weight for task in read_job(path).tasks] == [2, 1]


def test_a_book_is_shared_by_copies_and_can_not_be_pickled():
    book = book_of([])
    assert copy.deepcopy(book) is book
    with pytest.raises(UsageError, match="state dict"):
        pickle.dumps(book)


def test_a_book_that_nobody_holds_goes_away():
    book = book_of([entry(LINEAR)])
    call(book)
    seen = weakref.ref(book)
    del book
    gc.collect()
    assert seen() is None


def test_endless_shapes_leave_the_tables_bounded(monkeypatch):
    monkeypatch.setattr("tunefarm.runtime.threads.MAX_ROUTES", 4)
    monkeypatch.setattr("tunefarm.runtime.ledger.MAX_TALLIES", 4)
    book = book_of([])
    for m in range(1, 20):
        book.linear(torch.zeros(m, 8), torch.zeros(4, 8))
    assert len(book._desk.routes) <= 4
    assert len(book._chain._decisions) == 0
    assert book.counters.causes == {Cause.MISS: 19}
