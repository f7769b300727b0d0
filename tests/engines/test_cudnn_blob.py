"""What a plan's bytes say about themselves."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.engines.cudnn_blob import BlobFacts, check_blob, read_blob
from tunefarm.model.candidate import Candidate
from tunefarm.model.errors import Declined

CANDIDATE = Candidate(engine="cudnn", name="eng4_k24=3", engine_id=4, knobs=(("KERNEL_CFG", 3),))
PYTHON_CANDIDATE = Candidate(
    engine="cudnn", name="sdpa_fwd_prefill_sm90[TILE_M=128]", engine_id=20517, knobs=(("TILE_M", 128),)
)


def backend_blob(engine_id: int, knobs: dict[str, int]) -> bytes:
    """The part of a serialized backend plan that names its engine, as cuDNN 9.27 writes it, amid other bytes."""
    choices = {f"CUDNN_KNOB_TYPE_{name}": value for name, value in knobs.items()}
    engine = {"engineId": engine_id, "smVersion": 900, "knobChoices": choices, "targetSMcount": 132, "payload": {}}
    return (
        b"{i\x0cjson_versionSi\x032.0\xff"
        + json.dumps({"engine": engine}, separators=(",", ":")).encode()
        + b"\x00\xfe"
    )


def python_blob(engine_id: int, knobs: dict[str, int]) -> bytes:
    """A serialized plan of a python engine, as the frontend 1.32 writes it."""
    named = [[{"$enum": "cudnn:knob_type", "value": 26, "name": name}, value] for name, value in knobs.items()]
    header = json.dumps({"format": 1, "plan": {"engine_id": engine_id, "engine_name": "e", "knobs": named}}).encode()
    return b"CUDNN_FE_PYPLAN\0" + len(header).to_bytes(8, "little") + header + b"\x7fELF"


@pytest.mark.parametrize("blob", [backend_blob, python_blob])
@given(
    engine_id=st.integers(0, 30_000),
    knobs=st.dictionaries(st.from_regex(r"\A[A-Z][A-Z_]{0,20}\Z"), st.integers(-1, 999)),
)
def test_engine_and_knobs_are_read_back(
    blob: Callable[[int, dict[str, int]], bytes], engine_id: int, knobs: dict[str, int]
) -> None:
    assert read_blob(blob(engine_id, knobs)) == BlobFacts(engine_id, tuple(sorted(knobs.items())))


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"CUDNN_FE_PYPLAN\0" + tail))
def test_other_bytes_are_declined(blob: bytes) -> None:
    with pytest.raises(Declined, match="no serialized plan"):
        read_blob(blob)


@pytest.mark.parametrize("end", [10, 40, 80])
def test_truncated_plans_are_declined(end: int) -> None:
    for blob in (backend_blob(4, {"KERNEL_CFG": 3}), python_blob(20517, {"TILE_M": 128})):
        with pytest.raises(Declined, match="no serialized plan"):
            read_blob(blob[:end])


def test_a_plan_is_its_candidate_s_if_engine_and_named_knobs_are() -> None:
    facts = check_blob(backend_blob(4, {"KERNEL_CFG": 3, "STREAM_K": -1}), CANDIDATE)
    assert facts.knobs == (("KERNEL_CFG", 3), ("STREAM_K", -1))
    assert check_blob(python_blob(20517, {"TILE_M": 128}), PYTHON_CANDIDATE).engine_id == 20517


def test_a_knob_left_to_the_engine_may_hold_anything() -> None:
    left = replace(CANDIDATE, name="eng4_k24=-1", knobs=(("KERNEL_CFG", -1),))
    check_blob(backend_blob(4, {"KERNEL_CFG": 3}), left)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (backend_blob(7, {"KERNEL_CFG": 3}), "holds engine 7, not 4"),
        (backend_blob(4, {"KERNEL_CFG": 2}), "holds KERNEL_CFG=2, not 3"),
        (backend_blob(4, {"STREAM_K": 3}), "holds KERNEL_CFG=None, not 3"),
    ],
)
def test_a_plan_under_another_label_is_declined(blob: bytes, reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        check_blob(blob, CANDIDATE)
