"""20,000 bundles that are not what was signed: none is accepted with changed content, each gives one clear error."""

import base64
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.ship.make import KEY, NOON, OTHER_KEY, blob_of, bundle_of, choice
from tunefarm.model.errors import BundleDamaged, BundleError
from tunefarm.runtime import envelope as envelopes
from tunefarm.runtime.bundle import LENGTH_BYTES, MAGIC, Bundle
from tunefarm.runtime.envelope import PAYLOAD_TYPE, key_id, signed_bytes
from tunefarm.runtime.manifest import Manifest

CHOICES = [choice(1), choice(2), choice(3, name="eng9")]
DATA = bundle_of(CHOICES)
OTHERS = bundle_of([choice(1, name="eng7"), choice(2), choice(4)])
HEAD = len(MAGIC) + LENGTH_BYTES
LENGTH = int.from_bytes(DATA[len(MAGIC) : HEAD], "big")
ENVELOPE, BLOBS = DATA[HEAD : HEAD + LENGTH], DATA[HEAD + LENGTH :]
OUTER = json.loads(ENVELOPE)
MANIFEST = Manifest.from_json(base64.b64decode(OUTER["payload"]))
PLANS = {entry.digest: blob_of(c.trial) for c in CHOICES for entry in MANIFEST.entries if entry.trial == c.trial.key}
Mutation = Callable[[random.Random], bytes]


def packed(envelope: bytes, blobs: bytes = BLOBS) -> bytes:
    return MAGIC + len(envelope).to_bytes(LENGTH_BYTES, "big") + envelope + blobs


def signed(payload: bytes, blobs: bytes = BLOBS, *, key=KEY, kind: str = PAYLOAD_TYPE) -> bytes:
    """A bundle whose signature fits its payload, whatever that is."""
    signature = {"keyid": key_id(key.public_key()), "sig": encoded(key.sign(signed_bytes(kind, payload)))}
    outer = {"payload": encoded(payload), "payloadType": kind, "signatures": [signature]}
    return packed(json.dumps(outer).encode(), blobs)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def flip_bits(rng: random.Random) -> bytes:
    data = bytearray(DATA)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def flip_bits_of_a_plan(rng: random.Random) -> bytes:
    data = bytearray(DATA)
    data[len(DATA) - 1 - rng.randrange(len(BLOBS))] ^= 1 << rng.randrange(8)
    return bytes(data)


def overwrite(rng: random.Random) -> bytes:
    data = bytearray(DATA)
    start, count = rng.randrange(len(data)), rng.randrange(1, 64)
    data[start : start + count] = rng.randbytes(len(data[start : start + count]))
    return bytes(data)


def cut_off(rng: random.Random) -> bytes:
    return DATA[: rng.randrange(len(DATA))]


def append(rng: random.Random) -> bytes:
    return DATA + rng.choice([b"\0", b"\n", rng.randbytes(rng.randrange(1, 99)), BLOBS, DATA])


def cut_out_or_repeat(rng: random.Random) -> bytes:
    start = rng.randrange(len(DATA))
    end = start + rng.randrange(1, 200)
    return DATA[:start] + DATA[end:] if rng.random() < 0.5 else DATA[:end] + DATA[start:]


def swap_plans(rng: random.Random) -> bytes:
    one, other = rng.sample(MANIFEST.entries, 2)
    blobs = [BLOBS[e.offset : e.offset + e.packed_bytes] for e in sorted(MANIFEST.entries, key=lambda e: e.offset)]
    order = sorted(MANIFEST.entries, key=lambda e: e.offset)
    i, j = order.index(one), order.index(other)
    blobs[i], blobs[j] = blobs[j], blobs[i]
    if rng.random() < 0.5:  # or one of them twice
        blobs[i] = blobs[j][: len(blobs[i])].ljust(len(blobs[i]), b"\0")
    return packed(ENVELOPE, b"".join(blobs))


def others_plans(rng: random.Random) -> bytes:
    """The envelope of one bundle over the plans of another that the same key signed."""
    length = int.from_bytes(OTHERS[len(MAGIC) : HEAD], "big")
    others = OTHERS[HEAD + length :]
    return packed(ENVELOPE, others[: len(BLOBS)].ljust(rng.choice([len(BLOBS), len(others)]), b"\0"))


def other_key(rng: random.Random) -> bytes:
    payload = base64.b64decode(OUTER["payload"])
    outer = json.loads(signed(payload, key=OTHER_KEY)[HEAD : -len(BLOBS)])
    if rng.random() < 0.5:  # under the name of the trusted one
        outer["signatures"][0]["keyid"] = key_id(KEY.public_key())
    outer["signatures"] *= rng.randrange(1, 9)
    return packed(json.dumps(outer).encode())


def other_type(rng: random.Random) -> bytes:
    kind = rng.choice(["", "application/vnd.in-toto+json", PAYLOAD_TYPE + " ", PAYLOAD_TYPE.upper(), PAYLOAD_TYPE[:-1]])
    if rng.random() < 0.5:
        return signed(base64.b64decode(OUTER["payload"]), kind=kind)
    return packed(json.dumps({**OUTER, "payloadType": kind}).encode())


def change_manifest(rng: random.Random) -> bytes:
    """A value of the manifest is another one, under the old signature."""
    manifest = json.loads(base64.b64decode(OUTER["payload"]))
    _change_somewhere(manifest, rng)
    return packed(json.dumps({**OUTER, "payload": encoded(json.dumps(manifest).encode())}).encode())


def sign_nonsense(rng: random.Random) -> bytes:
    """A value of the manifest is none that it can be, and the trusted key signed it."""
    manifest = json.loads(base64.b64decode(OUTER["payload"]))
    entry = rng.choice(manifest["entries"])
    nonsense = rng.choice(
        [
            lambda: entry.update(offset=entry["offset"] + rng.choice([1, 7, 2**40])),
            lambda: entry.update(packed_bytes=entry["packed_bytes"] + rng.choice([-1, 1, 2**27, 2**60])),
            lambda: entry.update(raw_bytes=rng.choice([-1, 0, 2**62, "12", None, 1.5, True])),
            lambda: entry.update(digest=rng.choice(["", "0", "g" * 64, None, 7])),
            lambda: entry.update(target="0" * 20),
            lambda: entry.update(surplus=1),
            lambda: entry.pop(rng.choice(list(entry))),
            lambda: manifest.update(format=rng.choice([0, 2, "1", None, [1]])),
            lambda: manifest.update(entries=manifest["entries"] * 2),
            lambda: manifest.update(withdrawn=[entry["digest"]]),
            lambda: manifest.update(channel=rng.choice(["", "..", "a/b", "a\0b", "A"])),
            lambda: entry["problem"].update(op=rng.choice(["", "__class__", "matmul ", None])),
            lambda: entry["candidate"].update(engine="os:system"),
            lambda: manifest.update(targets=[]),
        ]
    )
    nonsense()
    return signed(json.dumps(manifest).encode())


def odd_json(rng: random.Random) -> bytes:
    text = ENVELOPE.decode()
    signature = OUTER["signatures"][0]
    odd = rng.choice(
        [
            lambda: text.replace("{", '{"payload":"e30=",', 1),
            lambda: text.replace("{", '{"signatures":[],', 1),
            lambda: text.replace("{", '{"x":NaN,', 1),
            lambda: text.replace('"keyid"', '"KeyId"', 1),
            lambda: text.replace('"keyid"', '"keyid":"","keyid"', 1),
            lambda: "[" * rng.choice([1, 1000, 100_000]) + text,
            lambda: f"[{text}]",
            lambda: text + rng.choice(["{}", ",", "\0", "x"]),
            lambda: "﻿" + text,
            lambda: json.dumps({**OUTER, "signatures": [signature] * 9}),
            lambda: json.dumps({**OUTER, "signatures": []}),
            lambda: json.dumps({**OUTER, "signatures": {"0": signature}}),
            lambda: json.dumps({**OUTER, "signatures": [{**signature, "sig": signature["sig"][:-4]}]}),
            lambda: json.dumps({**OUTER, "signatures": [{**signature, "sig": signature["sig"] + "\n"}]}),
            lambda: json.dumps({**OUTER, "signatures": [{**signature, "sig": None}]}),
            lambda: json.dumps({**OUTER, "payload": OUTER["payload"].rstrip("=") + " "}),
            lambda: json.dumps({**OUTER, "payload": [OUTER["payload"]]}),
            lambda: json.dumps({**OUTER, "payload": rng.choice([1, 1e308, 10**300, None, True, ""])}),
            lambda: json.dumps({**OUTER, "extra": 0}),
            lambda: json.dumps({k: v for k, v in OUTER.items() if k != rng.choice(list(OUTER))}),
            lambda: text.replace(":", ":" + "9" * 6000 + ",", 1),
        ]
    )()
    return packed(odd.encode(rng.choice(["utf-8", "utf-8", "utf-16", "utf-32"])))


def huge_lengths(rng: random.Random) -> bytes:
    length = rng.choice([0, 1, LENGTH - 1, LENGTH + 1, 2**26, 2**26 + 1, 2**31, 2**32 - 1, rng.randrange(2**32)])
    return MAGIC + length.to_bytes(LENGTH_BYTES, "big") + DATA[HEAD:]


def unpack_bomb(rng: random.Random) -> bytes:
    """The trusted key signed a plan that unpacks to more, or less, or something other than it says."""
    entry = MANIFEST.entries[0]
    blob = rng.choice(
        [
            zlib.compress(bytes(rng.choice([10_000, 1_000_000]))),
            zlib.compress(PLANS[entry.digest] + b"\0"),
            zlib.compress(PLANS[entry.digest][:-1]),
            zlib.compress(PLANS[entry.digest]) + b"\0",
            zlib.compress(PLANS[entry.digest])[:-1],
            PLANS[entry.digest],
            b"\0",
        ]
    )
    raw_bytes = rng.choice([entry.raw_bytes, entry.raw_bytes, 2**28, 1])
    bomb = replace(entry, offset=0, packed_bytes=len(blob), packed_digest=sha256(blob).hexdigest(), raw_bytes=raw_bytes)
    return signed(replace(MANIFEST, entries=(bomb,)).to_json(), blob)


def _change_somewhere(value, rng: random.Random) -> None:
    """Change one leaf, add a key, drop a key or repeat an item, somewhere within."""
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places or rng.random() < 0.1:
            if isinstance(value, dict):
                value["surplus"] = 0
            else:
                value.append("surplus")
            return
        place = rng.choice(places)
        inner = value[place]
        if isinstance(inner, dict | list):
            value = inner
            continue
        if rng.random() < 0.2:
            del value[place]
            return
        others = [0, 1, -1, 2**53, 1.5, "", "x", None, True, False, [], {}, inner * 2 if inner else 7]
        value[place] = rng.choice([other for other in others if json.dumps(other) != json.dumps(inner)])
        return


MUTATIONS: dict[Mutation, int] = {
    flip_bits: 4000,
    flip_bits_of_a_plan: 2000,
    overwrite: 2000,
    cut_off: 2000,
    append: 1000,
    cut_out_or_repeat: 2000,
    swap_plans: 500,
    others_plans: 100,
    other_key: 500,
    other_type: 500,
    change_manifest: 2500,
    sign_nonsense: 1500,
    odd_json: 1000,
    huge_lengths: 300,
    unpack_bomb: 300,
}


class Recorder:
    """Stands where cuDNN's `deserialize` would: keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def deserialize(self, blob: bytes) -> None:
        self.given.append(blob)


def serve(path, recorder: Recorder) -> Manifest:
    """What a process that serves does with a bundle: open it, load every plan."""
    with Bundle.open(path, KEY.public_key()) as bundle:
        for entry in bundle.manifest.entries:
            recorder.deserialize(bundle.plan_bytes(entry))
        return bundle.manifest


def test_there_are_twenty_thousand():
    assert sum(MUTATIONS.values()) >= 20_000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_no_changed_bundle_is_accepted_and_no_unverified_byte_is_handed_out(mutation, tmp_path):
    rng = random.Random(mutation.__name__)
    path = tmp_path / "mutant"
    errors = []
    for _ in range(MUTATIONS[mutation]):
        path.write_bytes(mutation(rng))
        recorder = Recorder()
        try:
            manifest = serve(path, recorder)
        except BundleError as error:
            errors.append(str(error))
        else:  # nothing but the envelope's own spelling differs, such as a key id, or the mutant is the original
            assert manifest == MANIFEST
            assert [sha256(blob).hexdigest() for blob in recorder.given] == [e.digest for e in MANIFEST.entries]
        assert set(recorder.given) <= set(PLANS.values())
    assert len(errors) >= 0.9 * MUTATIONS[mutation]
    assert all(str(path) in error and "\n" not in error and len(error) < 1000 for error in errors)


@contextmanager
def at_most(peak_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < peak_bytes
    finally:
        tracemalloc.stop()


def test_a_bomb_is_unpacked_no_further_than_it_says(tmp_path):
    entry = MANIFEST.entries[0]
    blob = zlib.compress(bytes(200_000_000), 9)
    bomb = replace(entry, offset=0, packed_bytes=len(blob), packed_digest=sha256(blob).hexdigest())
    path = tmp_path / "bomb"
    path.write_bytes(signed(replace(MANIFEST, entries=(bomb,)).to_json(), blob))
    with at_most(4_000_000), pytest.raises(BundleDamaged, match="does not unpack to what its entry says"):
        serve(path, Recorder())


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(MAGIC + (2**32 - 1).to_bytes(LENGTH_BYTES, "big"))
        file.truncate(2**32 + HEAD)  # a sparse file that does hold as much
    with at_most(1_000_000), pytest.raises(BundleDamaged, match="over the limit"):
        serve(path, Recorder())


def test_digests_are_checked_before_unpacking(tmp_path, monkeypatch):
    path = tmp_path / "flipped"
    path.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    unpacked = []
    unpacker = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda: unpacked.append(1) or unpacker())
    with pytest.raises(BundleDamaged, match="is not what was signed"):
        serve(path, Recorder())
    assert len(unpacked) == len(MANIFEST.entries) - 1


def test_signatures_are_checked_before_the_manifest_is_read(tmp_path, monkeypatch):
    path = tmp_path / "other"
    path.write_bytes(signed(b"no manifest at all", key=OTHER_KEY))
    with pytest.raises(BundleError, match="no trusted key signed"):
        serve(path, Recorder())
    assert envelopes.read_envelope(ENVELOPE).verify([KEY.public_key()])
    assert MANIFEST.created == NOON
