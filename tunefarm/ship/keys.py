"""Ed25519 keys in PEM files: the private one signs bundles, the public one is what inference processes trust."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from tunefarm.model.errors import UsageError
from tunefarm.runtime.envelope import key_id
from tunefarm.runtime.trust import read_key_file


def generate_key(private: Path, public: Path) -> str:
    """Make a key pair: the private file may be read by its owner alone. Returns the key's id.

    Raises:
        UsageError: a file is there already, or can't be written. A key is never overwritten.
    """
    key = Ed25519PrivateKey.generate()
    if public.exists():
        raise UsageError(f"{public} exists; name another, a key is never overwritten")
    _create(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _create(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
    return key_id(key.public_key())


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file.

    Raises:
        UsageError: it can't be read, or holds no unencrypted Ed25519 private key.
        BundleRefused: others than its owner may read or write it.
    """
    data = read_key_file(path, private=True)
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise UsageError(f"the private key {path} has a password; give a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path} holds no private key in PEM; make one with `tunefarm keygen`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} holds a key that is no Ed25519 key; make one with `tunefarm keygen`")
    return key


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask says
            file.write(data)
    except FileExistsError:
        raise UsageError(f"{path} exists; name another, a key is never overwritten") from None
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from None
