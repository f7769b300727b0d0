"""Small bundles, the keys that sign them, and stores to ship from."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.report.make import TARGET, trial
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Cache, Protocol
from tunefarm.model.trial import Standing, Trial
from tunefarm.runtime.manifest import FORMAT, Entry, Figures, Manifest
from tunefarm.ship.policy import Choice
from tunefarm.ship.write import Header, bundle_bytes, write_bundle
from tunefarm.store import Store, StoredPlan

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def blob_of(trial: Trial) -> bytes:
    """What stands for the plan's bytes. All pack to one length, so that nothing but their digests tells them apart."""
    return random.Random(f"{trial.problem.key} {trial.outcome.candidate.label}").randbytes(300)


def planned(trial: Trial) -> Trial:
    """The trial with the digest of its plan's bytes."""
    blob = blob_of(trial)
    return replace(trial, plan_digest=sha256(blob).hexdigest(), plan_bytes=len(blob))


def store_of(path: Path, trials: list[Trial]) -> Store:
    """A store of these trials and the plans of the measured ones."""
    store = Store.open(path, create=True)
    store.put_target(TARGET)
    plans = [
        Plan(t.outcome.candidate, blob_of(t), t.workspace_bytes, 450.0, t.resolved_knobs)
        for t in trials
        if t.plan_digest
    ]
    store.append_plans([StoredPlan(plan, "problem", TARGET.key) for plan in plans])
    store.append_trials(trials)
    return store


def choice(n: int, name: str = "eng4_k24=3", us: float = 10.0, **fields) -> Choice:
    candidate = fields.pop("candidate", Candidate(engine="cudnn", name=name, engine_id=4, knobs=(("KERNEL_CFG", 3),)))
    chosen = planned(trial(candidate, us, n=n, standing=Standing.WON, **fields))
    return Choice(chosen, "the fastest", None, None)


def header(counter: int = 1, **fields) -> Header:
    return Header(**{"channel": "test", "counter": counter, "created": NOON, **fields})


def bundle_of(choices: list[Choice], keys=(KEY,), **fields) -> bytes:
    """The bundle of these choices; `fields` are its header's."""
    blobs = {c.trial.plan_digest: blob_of(c.trial) for c in choices}
    return write_bundle(choices, {TARGET.key: TARGET}, header(**fields), blobs.__getitem__, keys)


def many_entries(count: int, raw_bytes: int) -> bytes:
    """A signed bundle of as many problems, each with a plan of its own."""
    random_bytes = random.Random(0).randbytes
    blobs = {}
    entries = []
    for n in range(1, count + 1):
        one = choice(n).trial
        blob = random_bytes(raw_bytes)
        digest = sha256(blob).hexdigest()
        blobs[digest] = blob
        entries.append(entry_of(one, digest))
    manifest = Manifest(FORMAT, "test", 1, NOON, None, "1.0", (TARGET,), tuple(entries), ())
    return bundle_bytes(manifest, blobs.__getitem__, [KEY])


def entry_of(one: Trial, digest: str) -> Entry:
    """An entry before it has a place."""
    return Entry(
        name=one.name,
        problem=one.problem,
        target=one.target,
        candidate=one.outcome.candidate,
        resolved_knobs=one.resolved_knobs,
        digest=digest,
        packed_digest="",
        offset=0,
        packed_bytes=0,
        raw_bytes=0,
        workspace_bytes=0,
        zero_workspace=False,
        deterministic=True,
        figures=Figures(10.0, 9.9, 10.1, 12.0, None, 11.0, None, "graph", Cache.COLD),
        trial=one.key,
        why="the fastest",
    )


HOT = Protocol(cache=Cache.HOT)
