"""What is measured: a bundle of a sweep's store, one that was shipped before, or one that is built here."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from serving.block import block_problems
from serving.forms import copies_of, outputs_of
from serving.timing import Clock, Run, race
from tunefarm.engines import make_engine
from tunefarm.engines.target import describe_target
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.errors import Declined, UsageError
from tunefarm.model.job import Cache, Search
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of
from tunefarm.runtime import Hit, PlanBook
from tunefarm.runtime.manifest import FORMAT, Entry, Figures, Manifest
from tunefarm.ship.write import bundle_bytes
from tunefarm.store import Store

T = TypeVar("T")

CANDIDATES = 4
"""Plans that are built and timed for each problem of the bundle made here."""

EAGER = Candidate("torch", "eager", proposed_by="torch")


@dataclass(frozen=True)
class Served:
    """What is measured."""

    path: Path
    key: Path
    """The public key that signed it."""
    book: PlanBook
    plans: tuple[tuple[Problem, Plan], ...]
    """Of cuDNN's for this machine, the one that took longest to build and the median one; winners or not."""
    store: Store | None
    """What it was shipped from, if that is known."""
    most: int
    """Problems that a part goes through at most."""
    clock: Clock

    def fitting(self) -> tuple[Entry, ...]:
        """The first entries that fit this machine, as many as a part goes through."""
        entries = (hit.offer.entry for p in self.book.fitting() if isinstance(hit := self.book.find(p), Hit))
        return tuple(entries)[: self.most]


def zeroed(launch: Callable[[], None], workspace: torch.Tensor | None) -> Callable[[], None]:
    """A launch as a captured call of the book makes it: nobody looked here whether the plan relies on zeros.

    A sweep looks: what ships from a store needs none.
    """
    if workspace is None:
        return launch

    def launch_on_zeros() -> None:
        workspace.zero_()
        launch()

    return launch_on_zeros


def choose(problem: Problem) -> tuple[Plan | None, dict[str, Plan], dict[str, float]]:
    """The fastest of a few right plans and torch, replayed from a graph; None for torch. With all plans and times."""
    engine = make_engine("cudnn")
    sets = copies_of(problem)
    eager = operation_of(problem).baselines(problem)[0].run
    reference = {name: t.float() for name, t in eager(sets[0]).items()}
    runs: dict[str, Run] = {"torch": lambda i: eager(sets[i % len(sets)])}
    plans: dict[str, Plan] = {}
    for candidate in engine.propose(problem, Search()).candidates[:CANDIDATES]:
        with suppress(Declined):
            plan = engine.build(problem, candidate)
            executable = engine.load(problem, plan)
            size = executable.workspace_bytes
            workspace = torch.zeros(size, dtype=torch.uint8, device="cuda") if size else None
            outputs = outputs_of(problem)
            launches = [zeroed(executable.bind(inputs, outputs, workspace), workspace) for inputs in sets]
            launches[0]()
            if all(torch.allclose(outputs[n].float(), r, rtol=0.03, atol=0.03) for n, r in reference.items()):
                plans[candidate.label] = plan
                runs[candidate.label] = lambda i, launches=launches: launches[i % len(launches)]()
    times = {name: us for name, row in race(runs, samples=5).items() if (us := row["captured_us"]) is not None}
    best = min(times, key=lambda name: times[name])
    if best != "torch" and times[best] > 0.99 * times["torch"]:
        best = "torch"
    return plans.get(best), plans, times


def entry_of(problem: Problem, target: str, plan: Plan, times: dict[str, float]) -> Entry:
    us = times.get(plan.candidate.label, times.get("torch", 0.0))
    return Entry(
        name=problem.label,
        problem=problem,
        target=target,
        candidate=plan.candidate,
        resolved_knobs=plan.knobs,
        digest=plan.digest,
        packed_digest="0" * 64,
        offset=0,
        packed_bytes=1,
        raw_bytes=1,
        workspace_bytes=plan.workspace_bytes,
        zero_workspace=True,
        deterministic=None,
        figures=Figures(us, us, us, None, times.get("torch"), None, us, "graph", Cache.COLD),
        trial="0" * 20,
        why="fastest of a few, by bench-serve",
    )


def write_bundle(folder: Path, name: str, entries: Iterable[Entry], blobs: dict[str, bytes]) -> tuple[Path, Path]:
    """A signed bundle and its public key."""
    key = Ed25519PrivateKey.generate()
    moment = datetime.now(UTC).replace(microsecond=0)
    manifest = Manifest(FORMAT, "bench", 1, moment, None, "bench", (describe_target(),), tuple(entries), ())
    path, public = folder / f"{name}.bundle", folder / f"{name}.pub"
    path.write_bytes(bundle_bytes(manifest, blobs.__getitem__, [key]))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    public.chmod(0o600)
    return path, public


def make_bundle(folder: Path, clock: Clock) -> tuple[Path, Path, list[tuple[Problem, Plan]]]:
    """The decoder block's problems, as many as half of the time allows, small batches first; and all that was built."""
    target = describe_target().key
    entries, blobs, built = [], {}, []
    half = clock.left() / 2
    for problem in block_problems():
        if clock.left() < half:
            print(f"no time to build for {problem.label} and what comes after it", file=sys.stderr)
            break
        plan, plans, times = choose(problem)
        built += [(problem, other) for other in plans.values()]
        plan = plan or make_engine("torch").build(problem, EAGER)
        entries.append(entry_of(problem, target, plan, times))
        blobs[plan.digest] = plan.blob
    return *write_bundle(folder, "block", entries, blobs), built


def ship(folder: Path, store: Path) -> tuple[Path, Path]:
    """What `tunefarm keygen` and `tunefarm ship` make of a store, and the public key."""
    key, path = folder / "bench.key", folder / "shipped.bundle"
    for verb in (["keygen", str(key)], ["ship", "--store", str(store), "--key", str(key), "--output", str(path)]):
        done = subprocess.run([sys.executable, "-m", "tunefarm", *verb], capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, file=sys.stderr)
        if not path.exists() and verb[0] == "ship":
            raise UsageError(f"tunefarm ship made nothing of {store} (exit code {done.returncode})")
    return path, key.with_name(f"{key.name}.pub")


def longest_and_median(made: Sequence[T], build_ms: Callable[[T], float]) -> list[T]:
    """What took longest to build, and the median of all."""
    ordered = sorted(made, key=build_ms)
    return [ordered[-1], ordered[len(ordered) // 2]] if ordered else []


def stored_plans(store: Store) -> list[tuple[Problem, Plan]]:
    """Two plans of cuDNN for this machine whose bytes a store has."""
    here, kept = describe_target().key, set(store.select("plans", columns=("digest",)).column("digest").to_pylist())
    trials = [
        trial
        for trial in store.trials()
        if trial.target == here and trial.outcome.candidate.engine == "cudnn" and trial.plan_digest in kept
    ]
    return [
        (
            t.problem,
            Plan(
                t.outcome.candidate,
                store.plan(t.plan_digest or ""),
                t.workspace_bytes or 0,
                t.build_ms or 0.0,
                t.resolved_knobs,
            ),
        )
        for t in longest_and_median(trials, lambda trial: trial.build_ms or 0.0)
    ]


def shipped_plans(book: PlanBook) -> list[tuple[Problem, Plan]]:
    """Two plans of cuDNN in a bundle that fit this machine.

    What they took to build is not known: most bytes stand for it, since a plan that was compiled holds its code.
    """
    hits = (hit.offer.entry for problem in book.fitting() if isinstance(hit := book.find(problem), Hit))
    entries = [entry for entry in hits if entry.candidate.engine == "cudnn"]
    return [
        (e.problem, Plan(e.candidate, book.bundle.plan_bytes(e), e.workspace_bytes, 0.0, e.resolved_knobs))
        for e in longest_and_median(entries, lambda entry: entry.raw_bytes)
    ]


def serve(options: argparse.Namespace, folder: Path, clock: Clock) -> Served:
    """Open what is to be measured; make it first if it was not shipped."""
    store = Store.open(options.store) if options.store else None
    plans: list[tuple[Problem, Plan]] | None = stored_plans(store) if store else None
    if options.bundle:
        path, key = options.bundle, options.key
    elif options.store:
        path, key = ship(folder, options.store)
    else:
        path, key, built = make_bundle(folder, clock)
        plans = longest_and_median(built, lambda made: made[1].build_ms)
    book = PlanBook.open(path, key)
    plans = shipped_plans(book) if plans is None else plans
    entries = book.bundle.manifest.entries
    print(f"{len(book.fitting())} of {len(entries)} entries fit this machine; {clock.left():.0f} s left")
    return Served(path, key, book, tuple(plans), store, options.problems, clock)
