"""A real S3 server on loopback."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def served() -> Iterator[str]:
    """Host and port of a server."""
    moto = pytest.importorskip("moto.server", reason="needs the extra `test`")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


def new_bucket(server: str, name: str) -> Callable[[str], str]:
    """Make a bucket; returns what makes the URI of a key in it."""
    urllib.request.urlopen(urllib.request.Request(f"http://{server}/{name}", method="PUT")).close()
    query = f"scheme=http&endpoint_override={server}&region=us-east-1"
    return lambda key: f"s3://ACCESS:SECRET@{name}/{key}?{query}"
