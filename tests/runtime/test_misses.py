"""What a book had no plan for, as a job that the farm reads."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tunefarm.jobfile import read_job
from tunefarm.ops.activation import Activation
from tunefarm.ops.conv import ConvLayout, ConvProblem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import Mask, SdpaLayout, SdpaProblem
from tunefarm.runtime.misses import job_text

sizes = st.integers(1, 9)
problems = st.one_of(
    st.builds(
        MatmulProblem,
        batch=sizes,
        m=sizes,
        n=sizes,
        k=sizes,
        transpose_a=st.booleans(),
        transpose_b=st.booleans(),
        alpha=st.sampled_from([1.0, 0.5, 1e-30, 1e30, 1.5e-7, -3.0]),
        bias=st.booleans(),
        activation=st.sampled_from(Activation),
        amax=st.booleans(),
    ),
    st.builds(
        SdpaProblem,
        heads_q=sizes,
        seq_q=st.just(3),
        seq_kv=st.integers(3, 9),
        head_dim=st.just(8),
        mask=st.sampled_from(Mask),
        layout=st.sampled_from(SdpaLayout),
        stats=st.booleans(),
    ),
    st.builds(
        ConvProblem,
        in_channels=sizes,
        height=st.integers(5, 9),
        width=st.integers(5, 9),
        out_channels=sizes,
        kernel=st.integers(1, 3),
        padding=st.integers(0, 2),
        padding_w=st.integers(0, 2),
        layout=st.sampled_from(ConvLayout),
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(problems, st.integers(1, 1000), min_size=1, max_size=6))
def test_the_job_holds_the_same_problems_most_called_first(missed):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "misses.yaml"
        path.write_text(job_text(missed), encoding="utf-8")
        tasks = read_job(path).tasks
    assert {task.problem for task in tasks} == missed.keys()
    weights = [task.weight for task in tasks]
    assert weights == [missed[task.problem] for task in tasks] == sorted(weights, reverse=True)


def test_the_calls_are_the_problems_weights():
    text = job_text({MatmulProblem(m=1, n=2, k=3): 1, MatmulProblem(m=2, n=2, k=3): 40})
    assert "# What a plan book had no plan for: 41 calls of 2 problems." in text
    assert text.index("weight: 40\n") < text.index("weight: 1\n")
