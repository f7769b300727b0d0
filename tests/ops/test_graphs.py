"""What the real cuDNN makes of the graphs, for a device that need not be there."""

from typing import Any

import pytest

from tests.cudnn_host import CudnnHost
from tunefarm.engines import make_engine
from tunefarm.model.candidate import Proposal
from tunefarm.model.dtypes import DType
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem

pytestmark = pytest.mark.cudnn

LINEAR: dict[str, Any] = {"m": 256, "n": 128, "k": 512}
IMAGE: dict[str, Any] = {"batch": 2, "in_channels": 64, "height": 16, "out_channels": 32, "kernel": 3, "padding": 1}
ATTENTION: dict[str, Any] = {"batch": 2, "heads_q": 8, "heads_kv": 2, "seq_q": 64, "seq_kv": 256, "head_dim": 64}

ACCEPTED = [
    *(MatmulProblem(**LINEAR, dtype=dtype) for dtype in DType),
    *(MatmulProblem(**LINEAR, transpose_b=True, bias=True, activation=activation) for activation in Activation),
    MatmulProblem(**LINEAR, batch=3, transpose_a=True, alpha=0.5, bias=True, activation=Activation.GELU, amax=True),
    MatmulProblem(**LINEAR, amax=True),
    MatmulProblem(m=7, n=13, k=5, transpose_b=True, bias=True, amax=True),
    *(ConvProblem(**IMAGE, dtype=dtype) for dtype in DType),
    *(ConvProblem(**IMAGE, bias=True, activation=activation) for activation in Activation),
    ConvProblem(**IMAGE, groups=4, bias=True, activation=Activation.RELU),
    ConvProblem(**IMAGE, kernel_w=1, padding_w=0, stride=2, dilation_w=2),
    ConvProblem(**IMAGE, layout=ConvLayout.NCHW),
    *(SdpaProblem(**ATTENTION, dtype=dtype, mask=Mask.CAUSAL) for dtype in DType),
    *(SdpaProblem(**ATTENTION, mask=mask, window=window) for mask in Mask for window in (0, 48)),
    SdpaProblem(**ATTENTION, mask=Mask.CAUSAL_BOTTOM_RIGHT, window=48, stats=True, layout=SdpaLayout.BSHD),
    SdpaProblem(**(ATTENTION | {"seq_q": 1}), mask=Mask.CAUSAL_BOTTOM_RIGHT, stats=True),
]


def propose(profile: str, problem: Problem) -> Proposal:
    return make_engine("cudnn", profile=profile).propose(problem, Search())


@pytest.mark.parametrize("problem", ACCEPTED, ids=lambda problem: problem.label)
def test_cudnn_has_plans(problem: Problem, cudnn_child: CudnnHost, h200_profile: str) -> None:
    proposal = cudnn_child.run(propose, h200_profile, problem)
    assert proposal.refusal is None
    assert proposal.candidates


def test_a_window_over_more_queries_than_keys_is_cudnn_s_to_refuse(cudnn_child: CudnnHost, h200_profile: str) -> None:
    problem = SdpaProblem(**(ATTENTION | {"seq_q": 256, "seq_kv": 64}), mask=Mask.CAUSAL, window=16)
    proposal = cudnn_child.run(propose, h200_profile, problem)
    assert not proposal.candidates
    assert "Sliding window" in proposal.refusal
