"""Plans from a signed bundle on a real GPU: results, graphs, streams, threads, compilation, foreign plans."""

import json
import threading
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from tests.runtime.on_gpu import another_patch, book_on_gpu
from tunefarm.engines.cudnn_blob import read_blob
from tunefarm.engines.target import describe_target
from tunefarm.ops import operation_of
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem
from tunefarm.runtime import Cause, PlanBook, Step, apply

pytestmark = pytest.mark.gpu

LINEAR = MatmulProblem(m=64, n=1024, k=512, transpose_b=True, bias=True, activation=Activation.RELU)
SMALL = MatmulProblem(m=1, n=1024, k=512, transpose_b=True)
PRODUCT = MatmulProblem(batch=4, m=64, n=128, k=256, alpha=0.5)
IMAGES = ConvProblem(batch=4, in_channels=64, height=28, out_channels=64, kernel=3, padding=1, bias=True)
CAUSAL = SdpaProblem(batch=2, heads_q=8, heads_kv=2, seq_q=256, head_dim=64, mask=Mask.CAUSAL)
PROBLEMS = (LINEAR, SMALL, PRODUCT, IMAGES, CAUSAL)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A book that is only read from: its bundle, to open anew in each test."""
    return book_on_gpu(tmp_path_factory.mktemp("bundle"), PROBLEMS).bundle


@pytest.fixture
def book(bundle):
    return PlanBook(bundle)


def inputs_of(problem, seed=0):
    return operation_of(problem).make_inputs(problem, torch.device("cuda", torch.cuda.current_device()), seed)


def layer(problem=LINEAR, seed=0):
    """x, w and bias of a linear layer."""
    inputs = inputs_of(problem, seed)
    return inputs["a"][0], inputs["b"][0].t(), inputs["bias"].flatten()


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=0.02, atol=0.03)


def torchs(x, w, b):
    return functional.relu(functional.linear(x, w, b))


@torch.no_grad()
def test_every_call_equals_torchs_and_is_a_hit(book):
    x, w, b = layer()
    close(book.linear(x, torch.nn.Parameter(w), b, activation="relu"), torchs(x, w, b))
    product = inputs_of(PRODUCT)
    close(book.matmul(product["a"], product["b"], alpha=0.5), 0.5 * product["a"] @ product["b"])
    image, filters, bias = inputs_of(IMAGES).values()
    y = book.conv2d(image, filters, bias.flatten(), padding=1)
    close(y, functional.conv2d(image, filters, bias.flatten(), padding=1))
    assert y.is_contiguous(memory_format=torch.channels_last)
    q, k, v = inputs_of(CAUSAL).values()
    close(
        book.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
    )
    close(book.run(LINEAR, inputs_of(LINEAR))["c"][0], torchs(x, w, b))
    assert book.counters.steps == {Step.SHIPPED: 5, Step.REBUILT: 0, Step.HEURISTIC: 0, Step.TORCH: 0}


def test_the_engine_and_knobs_that_run_are_those_that_were_stored(book):
    assert set(book.warm().values()) == {Step.SHIPPED}
    for entry in book.bundle.manifest.entries:
        facts = read_blob(book.bundle.plan_bytes(entry))
        decision = book.explain(entry.problem).decision
        assert decision.candidate == entry.candidate
        assert facts.engine_id == entry.candidate.engine_id
        assert facts.knobs == entry.resolved_knobs


@torch.no_grad()
def test_calls_are_captured_and_replayed_on_other_values(book):
    x, w, b = layer()
    q, k, v = inputs_of(CAUSAL).values()

    def step():
        return (
            book.linear(x, w, b, activation="relu"),
            book.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        )

    step()
    before = book.counters.steps[Step.SHIPPED]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    assert book.counters.steps[Step.SHIPPED] == before + 2
    for seed in (1, 2):
        x.copy_(layer(seed=seed)[0])
        q.copy_(inputs_of(CAUSAL, seed)["q"])
        graph.replay()
        for result, expected in zip(captured, step(), strict=True):
            close(result, expected)


@torch.no_grad()
def test_what_is_not_loaded_when_a_graph_is_captured_is_captured_as_torchs(book):
    x, w, b = layer()
    torchs(x, w, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = book.linear(x, w, b, activation="relu")
    graph.replay()
    close(result, torchs(x, w, b))
    assert book.counters.causes == {Cause.CAPTURING: 1}
    book.linear(x, w, b, activation="relu")
    assert book.counters.steps[Step.SHIPPED] == 1


@torch.no_grad()
def test_calls_run_on_the_current_stream(book):
    x, w, b = layer()
    expected = torchs(x, w, b)
    streams = [torch.cuda.Stream() for _ in range(3)]
    results = []
    for _ in range(20):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000)
                late = x.clone()  # only work on the same stream sees it
                results.append(book.linear(late, w, b, activation="relu"))
    torch.cuda.synchronize()
    for result in results:
        close(result, expected)


@torch.no_grad()
@pytest.mark.parametrize("captured", [False, True])
def test_threads_get_torchs_results_whatever_they_call(book, captured):
    inputs = {problem: inputs_of(problem) for problem in PROBLEMS}
    expected = {p: next(iter(operation_of(p).baselines(p)[0].run(inputs[p]).values())) for p in PROBLEMS}
    torch.cuda.synchronize()
    wrong = []

    def work(number):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            graphs = {}
            if captured:
                for problem in PROBLEMS:
                    book.run(problem, inputs[problem])
                    torch.cuda.current_stream().synchronize()
                    with lock:
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                            graphs[problem] = graph, book.run(problem, inputs[problem])
            for turn in range(1000):
                problem = PROBLEMS[(number + turn) % len(PROBLEMS)]
                if captured:
                    graph, outputs = graphs[problem]
                    graph.replay()
                else:
                    outputs = book.run(problem, inputs[problem])
                if turn % 100 < len(PROBLEMS):
                    torch.cuda.current_stream().synchronize()
                    try:
                        close(next(iter(outputs.values())), expected[problem])
                    except AssertionError as difference:
                        wrong.append((problem.label, str(difference)))

    lock = threading.Lock()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert wrong == []
    assert book.counters.causes == {}


@torch.no_grad()
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model_is_one_graph_that_asks_the_book(book, mode):
    torch.compiler.reset()
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024, bias=False), torch.nn.GELU()).cuda().bfloat16()
    x = torch.randn(1, 512, device="cuda", dtype=torch.bfloat16)
    expected = model(x)
    coverage = apply(model, book)
    assert [(layer.replaced, layer.plans) for layer in coverage.layers] == [(True, 1)]
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(4):
        result = compiled(x).clone()
    close(result, expected)
    assert book.counters.steps[Step.SHIPPED] > 0
    assert book.counters.causes == {}


def foreign(kind):
    """This machine's target, but for one fact, and what is said of it."""
    here = describe_target()
    if kind == "cuDNN":
        return another_patch(here), f"it needs cuDNN {here.cudnn}.999, here is {here.cudnn}"
    if kind == "driver":
        return replace(here, driver_cuda="99.0"), f"for CUDA 99.0 or newer, here is {here.driver_cuda}"
    properties = json.loads(here.profile)
    count = properties["multiProcessorCount"]
    other = replace(here, profile=json.dumps(properties | {"multiProcessorCount": count - 2}))
    return other, f"multiProcessorCount {count - 2}, here {count}"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["cuDNN", "driver", "SM count"])
def test_a_foreign_plan_is_a_miss_with_its_reason_and_then_rebuilt(tmp_path, kind):
    target, reason = foreign(kind)
    book = book_on_gpu(tmp_path, [LINEAR], target)
    x, w, b = layer()
    close(book.linear(x, w, b, activation="relu"), torchs(x, w, b))
    assert book.counters.causes == {Cause.MISS: 1}
    assert reason in str(book.explain(LINEAR))
    assert book.warm(build=True) == {LINEAR: Step.REBUILT}
    close(book.linear(x, w, b, activation="relu"), torchs(x, w, b))
    assert book.explain(LINEAR).decision.candidate == book.bundle.manifest.entries[0].candidate
    assert book.counters.steps[Step.REBUILT] == 1


@torch.no_grad()
def test_a_shape_that_the_bundle_lacks_gets_cudnns_first_choice_when_calls_may_build(bundle):
    book = PlanBook(bundle, on_miss="build")
    x = torch.randn(7, 512, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(1024, 512, device="cuda", dtype=torch.bfloat16) * 512**-0.5
    close(book.linear(x, w), functional.linear(x, w))
    assert book.counters.steps[Step.HEURISTIC] == 1


@torch.no_grad()
def test_an_address_that_plans_can_not_take_is_torchs(book):
    x, w, b = layer()
    odd = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view(x.shape).copy_(x)
    close(book.linear(odd, w, b, activation="relu"), torchs(x, w, b))
    assert book.counters.causes == {Cause.MISALIGNED: 1}


@torch.no_grad()
def test_tensors_of_another_gpu_than_the_current_one_run_there(book):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with torch.cuda.device(1):
        x, w, b = layer()
        expected = torchs(x, w, b)
    with torch.cuda.device(0):
        for _ in range(2):
            result = book.linear(x, w, b, activation="relu")
        assert result.device == x.device
        close(result, expected)
        here = layer()
        close(book.linear(*here, activation="relu"), torchs(*here))
    assert book.counters.steps[Step.SHIPPED] == 3
