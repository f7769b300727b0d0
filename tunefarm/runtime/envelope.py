"""The signed envelope: DSSE (https://github.com/secure-systems-lab/dsse) with Ed25519.

What is signed includes the payload's type, and the payload that was verified is the very bytes that are parsed after.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tunefarm.model.errors import BundleDamaged, BundleRefused
from tunefarm.model.keys import canonical_json
from tunefarm.runtime.strict_json import Malformed, items, parse, read_fields, text

PAYLOAD_TYPE = "application/vnd.tunefarm.bundle+json"
MAX_ENVELOPE = 2**26
"""Bytes of an envelope: 64 MiB. An entry takes about 2 KiB of it."""
MAX_SIGNATURES = 8
_SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Envelope:
    """An envelope as it was read: nothing in it is verified yet."""

    payload: bytes
    payload_type: str
    signatures: tuple[bytes, ...]

    def verify(self, keys: Sequence[Ed25519PublicKey]) -> str:
        """The id of a trusted key that signed the payload under the type of a bundle.

        Raises:
            BundleRefused: none did.
        """
        self.check_type()
        if not self.signatures:
            raise BundleRefused("the bundle has no signature; sign it, or say that unsigned ones are allowed")
        message = signed_bytes(self.payload_type, self.payload)
        for key in keys:
            for signature in self.signatures:
                try:
                    key.verify(signature, message)
                except InvalidSignature:
                    continue
                return key_id(key)
        raise BundleRefused(
            "no trusted key signed this bundle as it is: it was changed, or signed by another key;"
            f" trusted: {', '.join(key_id(key)[:12] for key in keys) or 'none'}"
        )

    def check_type(self) -> None:
        """Raises BundleRefused if the payload is said to be something other than a bundle's manifest."""
        if self.payload_type != PAYLOAD_TYPE:
            raise BundleRefused(f"the envelope holds {self.payload_type[:80]!r}, not a bundle ({PAYLOAD_TYPE})")


def read_envelope(data: bytes) -> Envelope:
    """The envelope in these bytes.

    Raises:
        BundleDamaged: there is none.
    """
    try:
        held = read_fields(parse(data), _ENVELOPE)
    except Malformed as fault:
        raise BundleDamaged(f"the bundle's envelope is malformed: {fault}") from None
    return Envelope(held["payload"], held["payloadType"], held["signatures"])


def seal(payload: bytes, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    """The envelope of a payload, signed by each key. Equal arguments give equal bytes."""
    message = signed_bytes(PAYLOAD_TYPE, payload)
    return canonical_json(
        {
            "payload": _encode(payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": key_id(key.public_key()), "sig": _encode(key.sign(message))} for key in keys],
        }
    ).encode()


def signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what a signature is over."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(key: Ed25519PublicKey) -> str:
    """A name for a key: SHA-256 of its DER. A hint for people, never a reason to trust."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(value: Any, *, limit: int) -> bytes:
    encoded = text(value, limit=limit)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("must be base64") from None
    if _encode(data) != encoded:
        raise Malformed("must be base64 in its one spelling")
    return data


def _signature(value: Any) -> bytes:
    signature: bytes = read_fields(value, _SIGNATURE)["sig"]
    if len(signature) != _SIGNATURE_BYTES:
        raise Malformed(f"has {len(signature)} bytes, not {_SIGNATURE_BYTES}", "sig")
    return signature


_SIGNATURE: Mapping[str, Any] = {"keyid": partial(text, limit=128), "sig": partial(_decode, limit=128)}
_ENVELOPE: Mapping[str, Any] = {
    "payload": partial(_decode, limit=MAX_ENVELOPE),
    "payloadType": partial(text, limit=128),
    "signatures": partial(items, read=_signature, limit=MAX_SIGNATURES),
}
