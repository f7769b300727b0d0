import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.ship.make import KEY, OTHER_KEY, bundle_of, choice
from tunefarm.model.errors import BundleRefused, UsageError
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.trust import trusted_keys
from tunefarm.ship.keys import generate_key, read_private_key


@pytest.fixture
def pair(tmp_path):
    private, public = tmp_path / "k", tmp_path / "k.pub"
    generate_key(private, public)
    return private, public


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_key_signs_what_its_public_half_trusts(pair, tmp_path):
    private, public = pair
    path = tmp_path / "b"
    path.write_bytes(bundle_of([choice(1)], keys=[read_private_key(private)]))
    assert Bundle.open(path, public).manifest.entries


def test_the_private_key_is_for_its_owner_alone(pair):
    private, public = pair
    assert (mode(private), mode(public)) == (0o600, 0o644)


def test_a_key_is_never_overwritten(pair):
    private, public = pair
    before = private.read_bytes(), public.read_bytes()
    with pytest.raises(UsageError, match="exists"):
        generate_key(private, public)
    public.unlink()
    with pytest.raises(UsageError, match="exists"):
        generate_key(private, public)
    assert private.read_bytes() == before[0]


@pytest.mark.parametrize("bits", [0o664, 0o646, 0o666])
def test_a_public_key_that_others_may_write_is_no_reason_to_trust(pair, bits):
    _, public = pair
    public.chmod(bits)
    with pytest.raises(BundleRefused, match="may be written by others"):
        trusted_keys(public)


@pytest.mark.parametrize(("bits", "told"), [(0o640, "may be read"), (0o604, "may be read"), (0o620, "may be written")])
def test_a_private_key_that_others_can_get_at_is_refused(pair, bits, told):
    private, _ = pair
    private.chmod(bits)
    with pytest.raises(BundleRefused, match=told):
        read_private_key(private)


def test_one_file_may_hold_several_keys_while_they_are_changed(tmp_path):
    both = tmp_path / "both.pub"
    both.write_bytes(
        b"".join(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in (KEY, OTHER_KEY)
        )
    )
    both.chmod(0o644)
    path = tmp_path / "b"
    for key in (KEY, OTHER_KEY):
        path.write_bytes(bundle_of([choice(1)], keys=[key]))
        assert Bundle.open(path, both).signed_by


def pem(key, password=None):
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "holds no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----\n", "holds no private key"),
        (pem(generate_private_key(SECP256R1())), "no Ed25519 key"),
        (pem(KEY, b"secret"), "has a password"),
        (b"x" * 70_000, "too large"),
    ],
)
def test_what_is_no_private_key_is_told(data, told, tmp_path):
    path = tmp_path / "k"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=told):
        read_private_key(path)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "holds no public key"),
        (pem(KEY), "holds no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----\n", "damaged"),
        (
            generate_private_key(SECP256R1())
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "no Ed25519 key",
        ),
    ],
)
def test_what_is_no_public_key_is_told(data, told, tmp_path):
    path = tmp_path / "k.pub"
    path.write_bytes(data)
    path.chmod(0o644)
    with pytest.raises(UsageError, match=told):
        trusted_keys([path])


def test_a_key_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="can't read the key"):
        trusted_keys(tmp_path / "absent")
