"""What a serialized plan says about itself, read without loading it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256

from tunefarm.model.candidate import Candidate, Knobs
from tunefarm.model.errors import Declined

_PYTHON_PLAN = b"CUDNN_FE_PYPLAN\0"
"""What plans of the frontend's python engines begin with; a little-endian u64, the header's length, and JSON follow."""
_KNOB_PREFIX = "CUDNN_KNOB_TYPE_"
_ENGINE = re.compile(rb'"engineId":(\d+)[^{}]*"knobChoices":(\{[^{}]*\})')
"""A backend plan is UBJSON with a string of JSON inside: the part that names the engine is plain text in it."""
_ENGINE_OBJECT = b'{"engineId":'
_ENGINES_CHOICE = -1
"""A knob's value where the engine itself chooses."""
_PARTS = "SPLIT_K_SLC"
"""The knob that may change how a kernel is launched and leave the kernel's code as it is."""


@dataclass(frozen=True)
class BlobFacts:
    """The engine and every knob that a plan holds."""

    engine_id: int
    knobs: Knobs


def read_blob(blob: bytes) -> BlobFacts:
    """The engine and knobs in a plan's bytes.

    Raises:
        Declined: these bytes are no serialized plan of cuDNN.
    """
    try:
        return _read_python_plan(blob) if blob.startswith(_PYTHON_PLAN) else _read_backend_plan(blob)
    except (ValueError, KeyError, TypeError):
        raise Declined("its bytes are no serialized plan of cuDNN: damaged, or of an unknown format") from None


def check_blob(blob: bytes, candidate: Candidate) -> BlobFacts:
    """The facts in a plan's bytes, if they are those of its candidate.

    Raises:
        Declined: the plan is another one than its label says.
    """
    facts = read_blob(blob)
    if facts.engine_id != candidate.engine_id:
        raise Declined(f"the plan holds engine {facts.engine_id}, not {candidate.engine_id} of {candidate.label}")
    held = dict(facts.knobs)
    for name, value in candidate.knobs:
        if value != _ENGINES_CHOICE and held.get(name) != value:
            raise Declined(f"the plan holds {name}={held.get(name)}, not {value} of {candidate.label}")
    return facts


def kernels_of(blob: bytes) -> str:
    """Digest of the kernels that a plan launches and how they are split, whatever knobs its bytes say it was made from.

    Empty where the bytes hold no code of their own (precompiled engines, python engines). A kernel's raw parameters are
    left out: what lies between the named ones is uninitialised.
    """
    start = blob.find(_ENGINE_OBJECT)
    if start < 0 or blob.startswith(_PYTHON_PLAN):
        return ""
    try:
        engine, _ = json.JSONDecoder().raw_decode(blob[start:].decode("latin-1"))
        kernels = [
            (kernel["kernelName"], kernel["cubin"], kernel["kernelParams"]["offsets"])
            for kernel in engine["payload"]["kernels"]
        ]
        parts = max(1, int(engine["knobChoices"].get(_KNOB_PREFIX + _PARTS, 1)))
    except (ValueError, KeyError, TypeError):
        return ""
    return sha256(json.dumps([kernels, parts]).encode()).hexdigest() if kernels else ""


def _read_backend_plan(blob: bytes) -> BlobFacts:
    found = _ENGINE.search(blob)
    if found is None:
        raise ValueError
    choices = json.loads(found[2])
    return BlobFacts(int(found[1]), tuple(sorted((k.removeprefix(_KNOB_PREFIX), int(v)) for k, v in choices.items())))


def _read_python_plan(blob: bytes) -> BlobFacts:
    start = len(_PYTHON_PLAN) + 8
    length = int.from_bytes(blob[len(_PYTHON_PLAN) : start], "little")
    plan = json.loads(blob[start : start + length])["plan"]
    return BlobFacts(int(plan["engine_id"]), tuple(sorted((str(k["name"]), int(v)) for k, v in plan["knobs"])))
