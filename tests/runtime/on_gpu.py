"""Bundles of plans built on this machine's GPU, signed and read back as any other."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.runtime.make import entry, manifest
from tunefarm.engines import make_engine
from tunefarm.engines.target import describe_target
from tunefarm.model.candidate import Plan
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.runtime import PlanBook
from tunefarm.ship.write import bundle_bytes


def build(problem: Problem) -> Plan:
    """The first of cuDNN's list that builds, not its first choice if there is another: a heuristic's answer shows."""
    engine = make_engine("cudnn")
    first, *others = engine.propose(problem, Search()).candidates
    for candidate in (*others, first):
        try:
            return engine.build(problem, candidate)
        except Declined:
            continue
    raise AssertionError(f"cuDNN builds nothing for {problem.label}")


def book_on_gpu(folder: Path, problems: Iterable[Problem], target: Target | None = None, **options) -> PlanBook:
    """A book of plans for these problems, labelled as built on a target that may be another than this."""
    target = target or describe_target()
    plans = {problem: build(problem) for problem in problems}
    entries = [
        entry(
            problem,
            plan.candidate,
            target,
            digest=plan.digest,
            resolved_knobs=plan.knobs,
            workspace_bytes=plan.workspace_bytes,
            zero_workspace=True,
        )
        for problem, plan in plans.items()
    ]
    blobs = {plan.digest: plan.blob for plan in plans.values()}
    key = Ed25519PrivateKey.generate()
    path = folder / "plans.bundle"
    path.write_bytes(bundle_bytes(manifest(entries, [target]), blobs.__getitem__, [key]))
    return PlanBook.open(path, key.public_key(), **options)


def another_patch(target: Target) -> Target:
    return replace(target, cudnn=f"{target.cudnn}.999")
