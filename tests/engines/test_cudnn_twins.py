"""Twins over the real library: plans made from other knobs that launch the same kernels."""

import pytest

from tests.cudnn_host import CudnnHost
from tests.engines.problems import MATMUL
from tests.engines.test_cudnn_engine import build
from tunefarm.engines.cudnn_blob import kernels_of
from tunefarm.model.candidate import Candidate, Plan

pytestmark = pytest.mark.cudnn

BARE = Candidate("cudnn", "eng4", 4)
EXPLICIT = Candidate("cudnn", "eng4_k24=2", 4, (("KERNEL_CFG", 2),))
UNSPLIT = Candidate("cudnn", "eng4_k17=1_k24=2", 4, (("KERNEL_CFG", 2), ("SPLIT_K_SLC", 1)))
OTHER = Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),))
SPLIT = Candidate("cudnn", "eng4_k17=2_k24=2", 4, (("KERNEL_CFG", 2), ("SPLIT_K_SLC", 2)))


def test_a_bare_engine_and_its_explicit_settings_are_twins_and_other_settings_are_not(
    cudnn_child: CudnnHost, h200_profile: str
) -> None:
    plans = [cudnn_child.run(build, h200_profile, MATMUL, c) for c in (BARE, EXPLICIT, UNSPLIT, OTHER, SPLIT)]
    bare, explicit, unsplit, other, split = (plan.twin_key for plan in plans)
    assert bare == explicit == unsplit
    assert len({bare, other, split}) == 3
    assert len({plan.digest for plan in plans[:3]}) == 3, "their bytes hold other knobs"


def test_a_plan_built_again_in_another_process_is_its_own_twin(cudnn_child: CudnnHost, h200_profile: str) -> None:
    first = cudnn_child.run(build, h200_profile, MATMUL, EXPLICIT)
    cudnn_child.stop()
    assert cudnn_child.run(build, h200_profile, MATMUL, EXPLICIT).twin_key == first.twin_key


@pytest.mark.parametrize("blob", [b"", b"CUDNN_FE_PYPLAN\0rest", b'{"engineId":4,', b'{"engineId":4}'])
def test_bytes_that_do_not_tell_their_kernels_have_no_twin_but_equal_bytes(blob: bytes) -> None:
    assert kernels_of(blob) == ""
    assert Plan(BARE, blob, 0, 1.0).twin_key == Plan(EXPLICIT, blob, 0, 2.0).twin_key
    assert Plan(BARE, blob, 0, 1.0).twin_key != Plan(BARE, blob + b"x", 0, 1.0).twin_key
