"""Bundles over the wire: a real S3 server on loopback."""

import pytest

from tests import s3
from tests.ship.make import KEY, NOON, bundle_of, choice
from tunefarm.model.errors import BundleDamaged, BundleRefused, UsageError
from tunefarm.model.places import public
from tunefarm.ship.installed import Installed
from tunefarm.ship.transport import chunks_of, put

DATA = bundle_of([choice(1), choice(2)])


@pytest.fixture(scope="module")
def server():
    with s3.served() as server:
        yield server


@pytest.fixture
def bucket(server, request):
    """Makes URIs of objects in a bucket of the test's own."""
    return s3.new_bucket(server, f"plans-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "plans.bundle"
    path.write_bytes(DATA)
    return path


def test_what_is_pushed_to_s3_is_what_is_pulled(bucket, path, tmp_path):
    put(path, bucket("prod.bundle"))
    assert b"".join(chunks_of(bucket("prod.bundle"))) == DATA
    installed = Installed(tmp_path / "plans")
    assert installed.pull(bucket("prod.bundle"), KEY.public_key(), NOON).manifest.counter == 1
    assert installed.current.read_bytes() == DATA


def test_a_newer_bundle_takes_the_object_s_place(bucket, path, tmp_path):
    installed = Installed(tmp_path / "plans")
    for counter in (1, 2):
        path.write_bytes(bundle_of([choice(1)], counter=counter))
        put(path, bucket("prod.bundle"))
        assert installed.pull(bucket("prod.bundle"), KEY.public_key(), NOON).manifest.counter == counter
    path.write_bytes(bundle_of([choice(1)], counter=1))
    put(path, bucket("prod.bundle"))
    with pytest.raises(BundleRefused, match="2 was here already"):
        installed.pull(bucket("prod.bundle"), KEY.public_key(), NOON)


def test_a_tampered_object_is_refused_and_the_message_holds_no_secret(bucket, path, tmp_path):
    path.write_bytes(DATA[:-3])
    put(path, bucket("prod.bundle"))
    with pytest.raises(BundleDamaged, match="fetch it anew") as caught:
        Installed(tmp_path / "plans").pull(bucket("prod.bundle"), KEY.public_key(), NOON)
    assert "prod.bundle" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert not list((tmp_path / "plans" / "bundles").iterdir())


def test_an_object_that_is_not_there_is_told_without_secrets(bucket, tmp_path):
    with pytest.raises(UsageError, match="can't read s3://") as caught:
        Installed(tmp_path / "plans").pull(bucket("absent"), KEY.public_key(), NOON)
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_told(server, path):
    with pytest.raises(UsageError, match="can't write s3://"):
        put(path, f"s3://a:b@no-such-bucket-here/x?scheme=http&endpoint_override={server}&region=us-east-1")


def test_local_paths_and_file_uris_are_the_same_place(path, tmp_path):
    put(path, (tmp_path / "copy").as_uri())
    assert b"".join(chunks_of(str(tmp_path / "copy"))) == DATA
    assert b"".join(chunks_of((tmp_path / "copy").as_uri())) == DATA


@pytest.mark.parametrize("place", ["ftp://host/x", "s3://", "nonsense://x"])
def test_a_place_of_a_kind_that_is_unknown_is_told(place, path):
    with pytest.raises(UsageError, match="can't write"):
        put(path, place)


def test_a_folder_that_is_not_there_is_told(path, tmp_path):
    with pytest.raises(UsageError, match="can't write"):
        put(path, str(tmp_path / "absent" / "x"))


def test_more_than_any_bundle_is_not_fetched(path, monkeypatch):
    monkeypatch.setattr("tunefarm.ship.transport.MAX_BUNDLE", len(DATA) - 1)
    with pytest.raises(UsageError, match="larger than any bundle"):
        list(chunks_of(str(path)))


def test_secrets_of_a_uri_are_not_shown():
    assert public("s3://KEY:SECRET@bucket/a?access_key=A&secret_key=B&region=r") == "s3://bucket/a?&&region=r"
    assert public("/a/b@c") == "/a/b@c"
