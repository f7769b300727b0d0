"""Small valid problems of every family."""

from hypothesis import strategies as st

from tunefarm.model.dtypes import DType
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem

dtypes = st.sampled_from(DType)
activations = st.sampled_from(Activation)

matmuls = st.builds(
    MatmulProblem,
    batch=st.integers(1, 3),
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    k=st.integers(1, 9),
    dtype=dtypes,
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    alpha=st.sampled_from([1.0, 0.1, -2.0]),
    bias=st.booleans(),
    activation=activations,
    amax=st.booleans(),
)


@st.composite
def convs(draw: st.DrawFn) -> ConvProblem:
    fields: dict[str, int] = {}
    for size, suffix in (("height", ""), ("width", "_w")):
        kernel, dilation, padding = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
        smallest = max(1, (kernel - 1) * dilation + 1 - 2 * padding)
        fields |= {
            size: smallest + draw(st.integers(0, 4)),
            f"kernel{suffix}": kernel,
            f"dilation{suffix}": dilation,
            f"padding{suffix}": padding,
            f"stride{suffix}": draw(st.integers(1, 3)),
        }
    groups = draw(st.integers(1, 3))
    return ConvProblem(
        **fields,
        batch=draw(st.integers(1, 2)),
        in_channels=groups * draw(st.integers(1, 3)),
        out_channels=groups * draw(st.integers(1, 3)),
        groups=groups,
        dtype=draw(dtypes),
        layout=draw(st.sampled_from(ConvLayout)),
        bias=draw(st.booleans()),
        activation=draw(activations),
    )


@st.composite
def sdpas(draw: st.DrawFn) -> SdpaProblem:
    heads_kv, seq_q, mask = draw(st.integers(1, 2)), draw(st.integers(1, 7)), draw(st.sampled_from(Mask))
    fewest_keys = seq_q if mask is Mask.CAUSAL_BOTTOM_RIGHT else 1
    return SdpaProblem(
        batch=draw(st.integers(1, 2)),
        heads_q=heads_kv * draw(st.integers(1, 3)),
        heads_kv=heads_kv,
        seq_q=seq_q,
        seq_kv=fewest_keys + draw(st.integers(0, 4)),
        head_dim=draw(st.sampled_from([8, 16])),
        dtype=draw(dtypes),
        layout=draw(st.sampled_from(SdpaLayout)),
        mask=mask,
        window=draw(st.integers(0, 5)),
        stats=draw(st.booleans()),
    )


problems = st.one_of(matmuls, convs(), sdpas())
