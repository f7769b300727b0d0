"""Look-up is a function of the entries and the machine, and gives a reason for everything that it turns down."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.make import CPU, EAGER, GPU, PLAN, entry, gpu, manifest
from tunefarm.model.candidate import Candidate
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime.lookup import Hit, Miss, find, misfit, offers_of

PROBLEM = MatmulProblem(m=1, n=8, k=8)
OTHER = MatmulProblem(m=2, n=8, k=8)


def found(machine, *offered):
    """What is found among (candidate, target) pairs."""
    targets = {target.key: target for _, target in offered}.values()
    entries = [entry(PROBLEM, candidate, target) for candidate, target in offered]
    return find(offers_of(manifest(entries, targets)), PROBLEM, machine)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (replace(GPU, cudnn="9.27.1"), "it needs cuDNN 9.27.0, here is 9.27.1"),
        (replace(GPU, cudnn=""), "it needs cuDNN 9.27.0, here is none"),
        (replace(GPU, cudnn_frontend="1.33.0"), "it needs the cuDNN frontend 1.32.0, here is 1.33.0"),
        (gpu(multiProcessorCount=114), "it is for another device: multiProcessorCount 132, here 114"),
        (gpu(smCountOrigin=7), "it is for another device: smCountOrigin unknown, here 7"),
        (replace(GPU, driver_cuda="12.9"), "it needs a driver for CUDA 13.0 or newer, here is 12.9"),
        (CPU, "it is for kind cuda, this machine's is cpu"),
    ],
)
def test_a_plan_that_does_not_fit_is_a_miss_with_both_values(machine, reason):
    assert found(machine, (PLAN, GPU)).reason == reason


@pytest.mark.parametrize(
    "machine",
    [
        GPU,
        replace(GPU, driver_cuda="13.1"),
        replace(GPU, torch="3.0"),
        replace(GPU, device="NVIDIA H200 NVL"),
        gpu(smClockRateKHz=1),
    ],
)
def test_what_cudnn_does_not_compare_does_not_matter(machine):
    assert isinstance(found(machine, (PLAN, GPU)), Hit)


def test_torchs_kernels_need_an_equal_device_but_no_library():
    assert isinstance(found(replace(gpu(smCountOrigin=7), cudnn="9.99.0", driver_cuda="12.0"), (EAGER, GPU)), Hit)
    assert "multiProcessorCount" in found(gpu(multiProcessorCount=1), (EAGER, GPU)).reason


def test_what_torch_compile_won_is_not_used_and_says_why():
    assert "compile the model around the call" in found(GPU, (Candidate("torch", "compile"), GPU)).reason


def test_no_entry_is_a_miss_that_says_so():
    assert find(offers_of(manifest([entry(OTHER)])), PROBLEM, GPU).reason == "the bundle has no entry for this problem"


def test_of_several_the_same_device_comes_first_then_the_newest_driver():
    old, new = replace(GPU, driver_cuda="12.8"), replace(GPU, driver_cuda="12.10")
    elsewhere = replace(GPU, device="another", driver_cuda="13.0")
    hit = found(GPU, (PLAN, elsewhere), (PLAN, old), (PLAN, new))
    assert hit.offer.target == new
    assert [rejected.reason for rejected in hit.rejected] == ["another entry is nearer to this machine"] * 2


machines = st.builds(
    lambda cudnn, frontend, driver, count, device: replace(
        gpu(multiProcessorCount=count), cudnn=cudnn, cudnn_frontend=frontend, driver_cuda=driver, device=device
    ),
    st.sampled_from(["9.27.0", "9.28.0"]),
    st.sampled_from(["1.32.0", "1.33.0"]),
    st.sampled_from(["12.8", "13.0"]),
    st.sampled_from([132, 114]),
    st.sampled_from(["a", "b"]),
)


@given(
    machine=machines,
    offered=st.lists(st.tuples(st.sampled_from([PLAN, EAGER]), machines), max_size=5, unique_by=lambda o: o[1].key),
)
def test_every_entry_is_the_hit_or_has_a_reason(machine, offered):
    result = found(machine, *offered)
    told = [rejected.offer for rejected in result.rejected] + ([result.offer] if isinstance(result, Hit) else [])
    assert sorted(o.target.key for o in told) == sorted(target.key for _, target in offered)
    assert isinstance(result, Miss) == all(misfit(offer, machine) for offer in told)
    if isinstance(result, Hit):
        assert misfit(result.offer, machine) is None
