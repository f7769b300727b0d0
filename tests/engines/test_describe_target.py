"""What a machine is, told as a target."""

import json
from dataclasses import replace

import pytest
import torch

from tests import targets
from tests.cudnn_host import PROFILE
from tunefarm.engines.target import describe_target, worker_id
from tunefarm.model.target import Target

H200 = replace(targets.H200, profile=PROFILE.read_text(encoding="utf-8"))


def with_property(name: str, value: int) -> Target:
    return replace(H200, profile=json.dumps({**json.loads(H200.profile), name: value}))


@pytest.mark.parametrize("name", ["multiProcessorCount", "memoryBusWidth", "maxSharedMemoryPerBlockOptin"])
def test_a_property_that_binds_plans_makes_another_target(name: str) -> None:
    assert with_property(name, 114).key != H200.key


@pytest.mark.parametrize("name", ["pciDeviceId", "cudaDeviceId", "smClockRateKHz", "totalGlobalMem"])
def test_a_property_that_differs_between_equal_machines_makes_none(name: str) -> None:
    assert with_property(name, 7).key == H200.key


def test_a_host_without_a_gpu_is_its_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    target = describe_target()
    assert target.kind == "cpu"
    assert target.device
    assert target.torch == torch.__version__
    assert (target.profile, target.cudnn, target.driver_cuda, target.compute_capability) == ("", "", "", "")
    assert worker_id().endswith("/cpu")
    assert describe_target() == target


@pytest.mark.gpu
def test_a_gpu_is_described_by_cudnn_itself() -> None:
    target = describe_target()
    assert target.kind == "cuda"
    assert target.device == torch.cuda.get_device_name()
    assert target.binding["multiProcessorCount"] == torch.cuda.get_device_properties(0).multi_processor_count
    assert target.cudnn.count(".") == 2
    assert int(target.driver_cuda.split(".")[0]) >= int((torch.version.cuda or "0").split(".")[0])
    assert int(target.compute_capability.replace(".", "")) * 10 == target.binding["deviceVer"]
    assert worker_id().startswith("GPU-")
    assert describe_target() == target
