"""Whom an inference process trusts: public keys, given by the caller, never by a bundle or its folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tunefarm.model.errors import BundleRefused, UsageError

Trust = Ed25519PublicKey | str | os.PathLike[str] | Iterable["Ed25519PublicKey | str | os.PathLike[str]"]
"""Public keys, or files that hold them in PEM, one or more a file: a bundle signed by any of them is trusted."""

MAX_KEY_FILE = 2**16
_BEGIN = b"-----BEGIN PUBLIC KEY-----"


def trusted_keys(trust: Trust) -> tuple[Ed25519PublicKey, ...]:
    """The keys that are meant.

    Raises:
        UsageError: a file can't be read or holds no Ed25519 public key.
        BundleRefused: others than its owner may write a file, so that it proves nothing.
    """
    if isinstance(trust, Ed25519PublicKey | str | os.PathLike):
        trust = (trust,)
    keys: list[Ed25519PublicKey] = []
    for item in trust:
        keys.extend([item] if isinstance(item, Ed25519PublicKey) else read_public_keys(Path(item)))
    return tuple(keys)


def read_public_keys(path: Path) -> tuple[Ed25519PublicKey, ...]:
    """Every key of a PEM file. Raises as `trusted_keys` does."""
    blocks = read_key_file(path).split(_BEGIN)[1:]
    if not blocks:
        raise UsageError(f"{path} holds no public key; `tunefarm keygen` writes one beside each private key")
    keys = []
    for block in blocks:
        try:
            key = load_pem_public_key(_BEGIN + block)
        except (ValueError, UnsupportedAlgorithm):
            raise UsageError(f"{path} holds a damaged public key; copy it anew from where it was made") from None
        if not isinstance(key, Ed25519PublicKey):
            raise UsageError(f"{path} holds a key that is no Ed25519 key; make one with `tunefarm keygen`")
        keys.append(key)
    return tuple(keys)


def read_key_file(path: Path, *, private: bool = False) -> bytes:
    """The bytes of a key file that only its owner may write, and if it is private, only its owner may read.

    Raises:
        UsageError: it can't be read.
        BundleRefused: its mode lets others at it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode  # of the file that is read, whatever the name means by then
            data = file.read(MAX_KEY_FILE + 1)
    except OSError as error:
        raise UsageError(f"can't read the key {path}: {error.strerror}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BundleRefused(f"{path} may be written by others than its owner, so it proves nothing: chmod go-w {path}")
    if private and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BundleRefused(f"the private key {path} may be read by others than its owner: chmod 600 {path}")
    if len(data) > MAX_KEY_FILE:
        raise UsageError(f"{path} is too large to be a key file")
    return data
