"""Problems that every test of an engine may use: small, and one of each operation."""

from tunefarm.model.dtypes import DType
from tunefarm.model.problem import Problem
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaProblem

MATMUL = MatmulProblem(m=256, n=128, k=512, bias=True, activation=Activation.RELU)
MATMUL_LARGER = MatmulProblem(m=512, n=256, k=1024, bias=True, activation=Activation.RELU)
MATMUL_SCALED = MatmulProblem(m=256, n=128, k=512, alpha=0.5, transpose_b=True)
MATMUL_AMAX = MatmulProblem(m=256, n=128, k=512, bias=True, activation=Activation.GELU, amax=True)
SDPA = SdpaProblem(batch=2, heads_q=4, heads_kv=2, seq_q=256, head_dim=64, mask=Mask.CAUSAL, stats=True)
CONV = ConvProblem(batch=2, in_channels=64, height=16, out_channels=64, kernel=3, padding=1, bias=True)
REFUSED = SdpaProblem(heads_q=1, seq_q=64, head_dim=520, dtype=DType.FLOAT32)
"""Attention that cuDNN has no engine for: float32 heads this long."""

ALL: dict[str, Problem] = {p.label: p for p in (MATMUL, MATMUL_SCALED, MATMUL_AMAX, SDPA, CONV)}
