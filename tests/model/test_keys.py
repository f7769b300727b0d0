import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm.model.candidate import Candidate, Note
from tunefarm.model.job import Cache, Protocol, Search
from tunefarm.model.keys import content_key
from tunefarm.model.target import BINDING_PROPERTIES, Target
from tunefarm.model.trial import trial_key

GOLDEN = json.loads((Path(__file__).parent / "golden_keys.json").read_text())
PROFILE = dict.fromkeys(BINDING_PROPERTIES, 1) | {"smClockRateKHz": 1980000, "pciDeviceId": 6}
H200 = Target("cuda", "NVIDIA H200", "9.0", "9.19.0", "1.32.0", "2.11.0+cu130", "13.0", json.dumps(PROFILE))


def with_profile(**changes: int) -> Target:
    return replace(H200, profile=json.dumps(PROFILE | changes))


def test_keys_of_stored_values_never_change() -> None:
    made = {
        "content": content_key("x", {"b": 1, "a": [True, None, "é"]}),
        "protocol": Protocol().key,
        "search": Search().key,
        "candidate": Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),)).key,
        "target": H200.key,
    }
    assert made == GOLDEN


@given(*[st.text(max_size=30)] * 4)
def test_a_trials_key_is_the_content_key_of_its_parts(problem: str, target: str, candidate: str, protocol: str) -> None:
    parts = {"problem": problem, "target": target, "candidate": candidate, "protocol": protocol}
    assert trial_key(problem, target, candidate, protocol) == content_key("trial", parts)


def test_a_key_is_over_content_not_order() -> None:
    assert content_key("x", {"a": 1, "b": 2}) == content_key("x", {"b": 2, "a": 1})
    assert content_key("x", {"a": 1}) != content_key("y", {"a": 1})
    assert content_key("x", {"a": 1}) != content_key("x", {"a": "1"})


def test_where_a_candidate_stood_in_a_list_is_no_part_of_it() -> None:
    one = Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),), proposed_by="A", rank=0)
    other = replace(one, proposed_by="FALLBACK", rank=7)
    assert one == other
    assert one.key == other.key
    assert one.is_default
    assert not other.is_default


@pytest.mark.parametrize(
    "change",
    [{"engine": "torch"}, {"name": "eng4_k24=4"}, {"engine_id": 5}, {"knobs": (("KERNEL_CFG", 4),)}, {"dynamic": True}],
)
def test_whatever_makes_another_binary_changes_a_candidates_key(change: dict[str, object]) -> None:
    one = Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),))
    assert replace(one, **change).key != one.key


@pytest.mark.parametrize(
    "change",
    [
        {"cache": Cache.HOT},
        {"max_workspace": 0},
        {"deterministic": True},
        {"forbid": (Note.FFT,)},
        {"max_rounds": 3},
        {"seed": 1},
        {"version": 99},
    ],
)
def test_every_field_of_a_protocol_is_part_of_its_key(change: dict[str, object]) -> None:
    assert replace(Protocol(), **change).key != Protocol().key


def test_no_field_of_a_protocol_is_left_out_above() -> None:
    tried = {"cache", "max_workspace", "deterministic", "forbid", "max_rounds", "seed", "version"}
    assert {f.name for f in fields(Protocol)} == tried


@pytest.mark.parametrize("name", BINDING_PROPERTIES)
def test_a_property_that_binds_plans_makes_another_target(name: str) -> None:
    assert with_profile(**{name: 2}).key != H200.key


@pytest.mark.parametrize("name", ["smClockRateKHz", "pciDeviceId"])
def test_a_property_that_differs_between_equal_machines_does_not(name: str) -> None:
    assert with_profile(**{name: 2}).key == H200.key


@pytest.mark.parametrize("name", ["kind", "device", "cudnn", "cudnn_frontend", "torch", "driver_cuda"])
def test_versions_and_device_make_another_target(name: str) -> None:
    assert replace(H200, **{name: "other"}).key != H200.key


def test_dict_round_trips() -> None:
    assert Target.from_dict(json.loads(json.dumps(H200.to_dict()))) == H200
    candidate = Candidate("cudnn", "eng4", 4, (("A", 1), ("B", 2)), dynamic=True, replayable=False, rank=3)
    assert Candidate.from_dict(json.loads(json.dumps(candidate.to_dict()))).to_dict() == candidate.to_dict()
