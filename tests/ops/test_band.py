import torch
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.ops.band import Band

CPU = torch.device("cpu")
offsets = st.none() | st.integers(-12, 12)


@given(st.integers(1, 9), st.integers(1, 9), offsets, offsets)
def test_counts_are_those_of_the_mask(seq_q: int, seq_kv: int, first: int | None, last: int | None) -> None:
    if first is not None and last is not None and first > last:
        first, last = last, first
    band = Band(seq_q, seq_kv, first, last)
    seen = band.seen(0, seq_q, CPU)
    expected = [
        [(first is None or j >= i + first) and (last is None or j <= i + last) for j in range(seq_kv)]
        for i in range(seq_q)
    ]
    assert seen.tolist() == expected
    assert band.pairs == int(seen.sum())
    assert band.keys == int(seen.any(dim=0).sum())


def test_part_of_a_mask_is_the_mask_of_those_queries() -> None:
    band = Band(7, 9, -1, 2)
    assert torch.equal(band.seen(3, 5, CPU), band.seen(0, 7, CPU)[3:5])
