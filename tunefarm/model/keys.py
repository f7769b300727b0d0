"""Keys: a stable name for a value, made from its content."""

import hashlib
import json
from collections.abc import Mapping

KEY_VERSION = 1
"""Part of every key. Raise it when a word changes its meaning, so that old rows are not taken for new ones."""

KEY_DIGITS = 20
"""Hex digits of a key."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def canonical_json(payload: Mapping[str, object]) -> str:
    """The one JSON text of a payload: sorted keys, no spaces, no NaN."""
    return _ENCODER.encode(payload)


def content_key(kind: str, payload: Mapping[str, object]) -> str:
    """The key of a value: 80 bits of SHA-256 over its kind and canonical JSON, as 20 hex digits."""
    text = canonical_json({"v": KEY_VERSION, "kind": kind, "payload": dict(payload)})
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]
