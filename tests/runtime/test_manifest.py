import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as words
from tests.ops.strategies import problems
from tests.report.make import TARGET
from tests.ship.make import NOON, entry_of
from tests.ship.make import choice as chosen
from tunefarm.model.candidate import NUMERICAL_NOTES, Candidate
from tunefarm.model.errors import BundleDamaged, BundleRefused
from tunefarm.model.job import Cache
from tunefarm.runtime.manifest import FORMAT, Entry, Figures, Manifest

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
utf8 = st.text(st.characters(codec="utf-8"), max_size=20)
knobs = st.dictionaries(utf8, st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda d: tuple(sorted(d.items())))
moments = words.moments.map(lambda moment: moment.replace(microsecond=0))
microseconds = st.floats(0, 1e9)
entries = st.builds(
    Entry,
    name=utf8,
    problem=problems,
    target=st.just(TARGET.key),
    candidate=st.builds(
        Candidate,
        engine=st.sampled_from(["cudnn", "torch"]),
        name=utf8,
        engine_id=st.none() | st.integers(0, 200),
        knobs=knobs,
        dynamic=st.booleans(),
        replayable=st.booleans(),
        proposed_by=utf8,
        rank=st.integers(0, 100),
        notes=st.lists(st.sampled_from(NUMERICAL_NOTES), unique=True).map(tuple),
    ),
    resolved_knobs=knobs,
    digest=digests,
    packed_digest=digests,
    offset=words.sizes,
    packed_bytes=st.integers(1, 2**20),
    raw_bytes=st.integers(1, 2**20),
    workspace_bytes=words.sizes,
    zero_workspace=st.booleans(),
    deterministic=st.none() | st.booleans(),
    figures=st.builds(
        Figures,
        time_us=microseconds,
        low_us=microseconds,
        high_us=microseconds,
        default_us=st.none() | microseconds,
        torch_us=st.none() | microseconds,
        eager_us=st.none() | microseconds,
        replay_us=st.none() | microseconds,
        method=st.sampled_from(["graph", "events", "wall"]),
        cache=st.sampled_from(Cache),
    ),
    trial=words.keys,
    why=utf8,
)
manifests = st.builds(
    Manifest,
    format=st.just(FORMAT),
    channel=st.sampled_from(["default", "prod-1", "a.b_c", "x"]),
    counter=st.integers(1, 2**40),
    created=moments,
    expires=st.none(),
    tunefarm=utf8,
    targets=st.just((TARGET,)),
    entries=st.lists(entries, max_size=3, unique_by=lambda entry: entry.problem.key).map(tuple),
    withdrawn=st.just(()),
)

PLAIN = Manifest(FORMAT, "test", 3, NOON, None, "1.0", (TARGET,), (entry_of(chosen(8).trial, "a" * 64),), ("b" * 64,))
PLACED = json.loads(PLAIN.to_json())
PLACED["entries"][0] |= {"packed_digest": "c" * 64, "packed_bytes": 10, "raw_bytes": 20}


def changed(*path, to):
    """The manifest's JSON with one value replaced, or removed where `to` is Ellipsis."""
    payload = json.loads(json.dumps(PLACED))
    holder = payload
    for step in path[:-1]:
        holder = holder[step]
    if to is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = to
    return json.dumps(payload).encode()


@given(manifests)
def test_a_manifest_is_what_its_json_says(manifest):
    again = Manifest.from_json(manifest.to_json())
    assert again == manifest
    assert [e.candidate.to_dict() for e in again.entries] == [e.candidate.to_dict() for e in manifest.entries]
    assert again.to_json() == manifest.to_json()


def test_the_plain_one_can_be_read():
    assert Manifest.from_json(json.dumps(PLACED).encode()).counter == 3


ENTRY = ("entries", 0)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (changed("surplus", to=1), "unknown key 'surplus'"),
        (changed("withdrawn", to=...), "lacks the key 'withdrawn'"),
        (changed("counter", to=0), "counter must be from 1"),
        (changed("counter", to=True), "counter must be a whole number"),
        (changed("counter", to=3.0), "counter must be a whole number"),
        (changed("counter", to=2**63), "counter must be from 1"),
        (changed("channel", to="../etc"), "channel must be up to 64"),
        (changed("channel", to="Prod"), "channel must be"),
        (changed("created", to="2030-01-01T12:00:00+00:00"), "created"),
        (changed("created", to="2030-1-1T12:00:00Z"), "created must be a time"),
        (changed("expires", to="2029-01-01T00:00:00Z"), "expires is not after its creation"),
        (changed("targets", to={}), "targets must be a list"),
        (changed("targets", 0, "profile", to="[]"), "targets.0.profile must be an object"),
        (changed("targets", 0, "profile", to="{"), "targets.0.profile is no JSON"),
        (changed("targets", 0, "kind", to="tpu"), "targets.0.kind must be cuda or cpu"),
        (changed("targets", to=[TARGET.to_dict()] * 2), "targets holds one twice"),
        (changed("entries", to=PLACED["entries"] * 2), "entries.1 is for a problem and target that another"),
        (changed(*ENTRY, "target", to="0" * 20), "entries.0.target is none of the targets"),
        (changed(*ENTRY, "digest", to="A" * 64), "entries.0.digest must be a SHA-256"),
        (changed(*ENTRY, "digest", to="b" * 64), "withdrawn by the bundle itself"),
        (changed(*ENTRY, "raw_bytes", to=2**40), "entries.0.raw_bytes must be from 1"),
        (changed(*ENTRY, "packed_bytes", to=0), "entries.0.packed_bytes must be from 1"),
        (changed(*ENTRY, "offset", to=-1), "entries.0.offset must be from 0"),
        (changed(*ENTRY, "zero_workspace", to=0), "zero_workspace must be true or false"),
        (changed(*ENTRY, "name", to="x" * 513), "has 513 characters"),
        (changed(*ENTRY, "name", to="\ud800"), "half a character"),
        (changed(*ENTRY, "problem", "op", to="os.system"), "no operation named"),
        (changed(*ENTRY, "problem", "fields", "m", to="8"), "not spelled as"),
        (changed(*ENTRY, "problem", "fields", "m", to=0), "entries.0.problem describes no problem"),
        (changed(*ENTRY, "problem", "fields", "m", to=...), "entries.0.problem describes no problem"),
        (changed(*ENTRY, "problem", "fields", "bias", to=...), "not spelled as"),
        (changed(*ENTRY, "problem", "fields", "bias", to="yes"), "not spelled as"),
        (changed(*ENTRY, "problem", "fields", "extra", to=1), "describes no problem"),
        (changed(*ENTRY, "candidate", "engine", to="os:system"), "engine must be cudnn or torch"),
        (changed(*ENTRY, "candidate", "knobs", to=[["b", 1], ["a", 1]]), "must be sorted"),
        (changed(*ENTRY, "candidate", "knobs", to=[["a", 1], ["a", 1]]), "must be sorted"),
        (changed(*ENTRY, "candidate", "knobs", to=[["a", 1, 2]]), "must be a name and a value"),
        (changed(*ENTRY, "candidate", "knobs", to=[["a", 1.5]]), "must be a whole number"),
        (changed(*ENTRY, "figures", "time_us", to=-1), "figures.time_us must be a number from 0"),
        (changed(*ENTRY, "figures", "time_us", to=None), "figures.time_us must be a number"),
        (changed(*ENTRY, "figures", "cache", to="warm"), "figures.cache must be cold or hot"),
        (changed(*ENTRY, "figures", "time_us", to=float("nan")), "NaN"),
        (json.dumps(PLACED).replace("10.0", "1e999").encode(), "out of range"),
        (json.dumps(PLACED).replace('"counter": 3', '"counter": 3, "counter": 4').encode(), "'counter' twice"),
        (json.dumps(PLACED).replace("3", "9" * 5000, 1).encode(), "malformed"),
        (json.dumps(PLACED).encode("utf-16"), "no JSON in UTF-8"),
        (b"\xef\xbb\xbf" + json.dumps(PLACED).encode(), "no JSON in UTF-8"),
        (b"[" * 200_000, "nested too deep"),
        (b"null", "must be an object"),
        (b"", "no JSON"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_not_exactly_one_is_refused_and_the_place_is_told(data, told):
    with pytest.raises(BundleDamaged) as caught:
        Manifest.from_json(data)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_manifest_of_another_format_says_to_upgrade():
    with pytest.raises(BundleRefused, match="has format 2; this tunefarm reads format 1: upgrade"):
        Manifest.from_json(changed("format", to=2))


def test_a_bundle_expires_at_its_time():
    expiring = Manifest.from_json(changed("expires", to="2030-02-01T00:00:00Z"))
    assert expiring.expires is not None
    assert not expiring.is_expired(NOON)
    assert expiring.is_expired(expiring.expires)
    assert not PLAIN.is_expired(expiring.expires)
