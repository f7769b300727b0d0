"""The timer on a real GPU, by kernels whose behaviour is known."""

from collections.abc import Callable
from statistics import median

import pytest
import torch

from tunefarm.engines.engine import Launch
from tunefarm.measure.buffers import scrub
from tunefarm.measure.gpu import Gpu, current_gpu
from tunefarm.measure.timing import CaptureError, CudaTimer, Method
from tunefarm.model.job import Cache
from tunefarm.ops.matmul import MatmulProblem

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return current_gpu(torch.cuda.current_device())


def copies(megabytes: int, sets: int) -> list[Launch]:
    size = megabytes * 2**20
    pairs = [(torch.ones(size, dtype=torch.uint8, device="cuda"), torch.empty(size, dtype=torch.uint8, device="cuda"))]
    pairs += [(pairs[0][0].clone(), pairs[0][1].clone()) for _ in range(sets - 1)]
    return [lambda s=source, t=target: t.copy_(s) for source, target in pairs]


def product(size: int) -> Launch:
    a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def sampled(block: Callable[[], float], count: int = 15) -> float:
    block()
    return median(block() for _ in range(count))


def timed(gpu: Gpu, launches: list[Launch], method: Method, cache: Cache = Cache.HOT) -> float:
    for launch in launches:
        launch()
    return sampled(CudaTimer(gpu, cache).block(launches, method, sweep=cache is Cache.COLD))


# Copies, not products: a product's time moves by a tenth within a second, as the GPU meets its power limit.
def test_graph_and_events_agree_where_the_host_is_no_limit(gpu: Gpu) -> None:
    launches = copies(256, 1) * 4
    assert timed(gpu, launches, "graph") == pytest.approx(timed(gpu, launches, "events"), rel=0.05)


def test_the_time_of_a_launch_does_not_depend_on_how_many_a_block_has(gpu: Gpu) -> None:
    launches = copies(64, 1)
    n, twice = (timed(gpu, launches * count, "graph") for count in (10, 20))
    slope = (20 * twice - 10 * n) / 10
    assert slope == pytest.approx(twice, rel=0.03)


def test_an_unrolled_graph_of_empty_kernels_reads_under_3_us_a_launch(gpu: Gpu) -> None:
    one = torch.zeros(1, device="cuda")
    assert timed(gpu, [one.zero_] * 20, "graph") < 3


def test_a_slow_host_is_not_read_as_a_slow_device(gpu: Gpu) -> None:
    one = torch.zeros(1, device="cuda")

    def several() -> None:
        for _ in range(5):
            one.add_(1)

    assert timed(gpu, [several] * 5, "events") < 3 * timed(gpu, [several] * 5, "graph")
    assert CudaTimer(gpu, Cache.HOT).eager([several], 50) > timed(gpu, [several] * 5, "graph")


def test_cold_copies_keep_below_the_memory_s_ceiling_and_hot_ones_don_t(gpu: Gpu) -> None:
    megabytes = max(1, gpu.l2_bytes // 2**20 // 6)
    moved = 2 * megabytes * 2**20
    cold = timed(gpu, copies(megabytes, 10), "graph", Cache.COLD)
    hot = timed(gpu, copies(megabytes, 1) * 10, "graph", Cache.HOT)
    read = moved / 2  # what is written may stay in L2
    assert read / cold <= 1.1 * gpu.bytes_per_us
    assert hot < 0.8 * cold


def test_the_same_plan_under_two_names_reads_alike(gpu: Gpu) -> None:
    launches = [product(2048)] * 10
    timer = CudaTimer(gpu, Cache.COLD)
    a, b = (timer.block(launches, "graph", sweep=True) for _ in range(2))
    ratios = [a() / b() for _ in range(40)]
    assert abs(median(ratios) - 1) < 0.005


def test_the_ceilings_are_within_reach_of_data_sheets(gpu: Gpu) -> None:
    assert 1e5 < gpu.bytes_per_us < 2e7
    assert 1e7 < gpu.flops_per_us < 1e10


def test_the_delay_takes_as_long_as_asked(gpu: Gpu) -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    gpu.wake()
    start.record()
    gpu.delay(500)
    end.record()
    end.synchronize()
    assert 400 < start.elapsed_time(end) * 1e3 < 700


def test_what_waits_for_the_device_can_t_be_captured_and_harms_nobody_after_it(gpu: Gpu) -> None:
    one = torch.ones(1000, device="cuda")
    timer = CudaTimer(gpu, Cache.COLD)
    for _ in range(3):
        with pytest.raises(CaptureError):
            timer.block([lambda: one.sum().item()], "graph", sweep=True)
    assert one.sum().item() == 1000
    assert timed(gpu, [one.zero_] * 5, "graph") > 0
    assert timed(gpu, [lambda: one.sum().item()] * 2, "events") > 0
    torch.cuda.empty_cache()  # raises while torch takes a capture to be under way


def test_outputs_that_launches_allocate_are_written_by_each_replay(gpu: Gpu) -> None:
    source = torch.ones(1000, device="cuda")
    found: dict[str, torch.Tensor] = {}
    block = CudaTimer(gpu, Cache.COLD).block([lambda: found.update(y=source + 1)] * 3, "graph", sweep=True)
    found["y"].fill_(torch.nan)
    block()
    assert found["y"].tolist() == [2.0] * 1000


def test_memory_that_held_right_results_is_scrubbed_before_it_is_handed_out() -> None:
    problem = MatmulProblem(m=1024, n=1024, k=64)

    def output() -> torch.Tensor:
        return torch.empty(1, 1024, 1024, dtype=torch.bfloat16, device="cuda")

    right = output().fill_(1)
    place = right.data_ptr()
    del right
    scrub(problem, torch.device("cuda"))
    handed_out = output()
    assert handed_out.data_ptr() == place
    assert handed_out.isnan().all()
