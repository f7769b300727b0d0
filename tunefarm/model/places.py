"""Places that a person names: a local path, or a URI such as `s3://bucket/folder`."""

import re

_SECRETS = re.compile(r"(?<=://)[^/@]*@|(?<=[?&])(?:access_key|secret_key)=[^&]*")


def is_uri(place: str) -> bool:
    """Whether it is no path of this machine."""
    return "://" in place


def public(place: str) -> str:
    """A place without the secrets that a URI may hold."""
    return _SECRETS.sub("", place)
