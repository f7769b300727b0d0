"""One small problem of every family, dtype and secondary output."""

from tunefarm.model.dtypes import DType
from tunefarm.model.problem import Problem
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

PROBLEMS: tuple[Problem, ...] = tuple(
    problem
    for dtype in DType
    for problem in (
        MatmulProblem(m=64, n=96, k=64, dtype=dtype, bias=True, activation=Activation.GELU, amax=True, alpha=0.5),
        MatmulProblem(m=1, n=40, k=64, dtype=dtype),
        ConvProblem(batch=2, in_channels=16, height=12, out_channels=40, kernel=3, padding=1, dtype=dtype),
        SdpaProblem(heads_q=2, seq_q=64, head_dim=32, dtype=dtype, mask=Mask.CAUSAL, stats=True),
        SdpaProblem(heads_q=2, seq_q=96, seq_kv=64, head_dim=32, dtype=dtype, window=8, stats=True),
    )
)
