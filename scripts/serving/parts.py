"""The parts of the benchmark: each is a table."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from serving.block import BATCHES, HIDDEN, make_block
from serving.bundles import Served, entry_of, write_bundle
from serving.forms import form_of
from serving.host import part_host
from serving.processes import child
from serving.timing import Row, Run, launched, race
from tunefarm.engines.target import describe_target
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime import PlanBook, apply

OPENED_PLANS = 1000


def part_open(_: Served | None) -> list[Row]:
    """Opening a bundle of a thousand plans of usual size, in a fresh process that has imported the runtime."""
    target = describe_target().key
    entries, blobs = [], {}
    pattern = os.urandom(40_000)
    for m in range(1, OPENED_PLANS + 1):
        problem = MatmulProblem(m=m, n=4096, k=4096, transpose_b=True)
        plan = Plan(Candidate("cudnn", "eng4_k24=3", 4, (("KERNEL_CFG", 3),)), m.to_bytes(4, "big") + pattern, 0, 0.0)
        entries.append(entry_of(problem, target, plan, {}))
        blobs[plan.digest] = plan.blob
    with tempfile.TemporaryDirectory() as folder:
        path, key = write_bundle(Path(folder), "thousand", entries, blobs)
        return [{"plans": OPENED_PLANS, "file_mb": path.stat().st_size / 1e6, **child("open", path, key)}]


def part_load(served: Served) -> list[Row]:
    """First call with a shipped plan against a cold build of it, each in a fresh process without CUDA's cache on disk.

    The plans: the one that took longest to build, and the median one.
    """
    rows = []
    for what, (problem, plan) in zip(("longest", "median"), served.plans, strict=False):
        if served.clock.left() < 30:
            break
        with tempfile.TemporaryDirectory() as folder:
            entry = entry_of(problem, describe_target().key, plan, {})
            path, key = write_bundle(Path(folder), "one", [entry], {plan.digest: plan.blob})
            shipped, built = child("shipped", path, key), child("built", path, key)
        rows.append(
            {
                "build": what,
                "problem": problem.label,
                "plan": plan.candidate.label,
                "plan_bytes": len(plan.blob),
                "stored_build_ms": plan.build_ms or None,
                "load_ms": shipped["load_ms"],
                "first_call_ms": shipped["first_call_ms"],
                "cold_build_ms": built["load_ms"],
                "cold_first_call_ms": built["first_call_ms"],
                "times_faster": built["first_call_ms"] / shipped["first_call_ms"],
            }
        )
    return rows


def part_fresh(served: Served) -> list[Row]:
    """A fresh process runs shipped plans from their own bytes: engine and knobs are those stored, calls are hits."""
    entries = served.fitting()
    manifest = served.book.bundle.manifest.entries
    ran = child("fresh", served.path, served.key, *(manifest.index(entry) for entry in entries))["entries"]
    stored = {trial.key: trial for trial in served.store.trials()} if served.store else {}
    rows = []
    for entry, facts in zip(entries, ran, strict=True):
        trial = stored.get(entry.trial)
        candidate = trial.outcome.candidate if trial else entry.candidate
        knobs, digest = (trial.resolved_knobs, trial.plan_digest) if trial else (entry.resolved_knobs, entry.digest)
        expected = [candidate.engine_id, [list(knob) for knob in knobs], digest]
        executed = [facts["engine_id"], facts["knobs"], facts["digest"]]
        rows.append(
            {
                "problem": entry.problem.label,
                "ran": facts["label"],
                "step": facts["step"],
                "hits": facts["hits"],
                "as_stored": executed == expected and facts["label"] == candidate.label,
                "compared_with": "store" if trial else "manifest",
                "difference": facts["difference"],
            }
        )
    return rows


def part_problems(served: Served) -> list[Row]:
    """Each shipped problem: the book, torch eager and compiled, and the first choice of cuDNN's heuristic."""
    rows = []
    book = served.book
    default = PlanBook(without_entries(book), on_miss="build")
    reserve = served.clock.left() * 0.35
    for entry in served.fitting():
        problem = entry.problem
        if served.clock.left() < reserve:
            print(f"no time for {problem.label} and what comes after it", file=sys.stderr)
            break
        torch.compiler.reset()
        form = form_of(problem)
        contestants = {
            "book": form.ask(book),
            "torch": form.by_torch,
            "compile": form.compiled,
            "heuristic": form.ask(default),
        }
        row: Row = {"problem": problem.label, "plan": entry.candidate.label}
        for name, times in race({name: form.over(function) for name, function in contestants.items()}).items():
            row |= {f"{name}_{kind}": us for kind, us in times.items()}
        rows.append(row)
    return rows


class _Empty:
    """A bundle without entries: all that its book can do is to ask cuDNN."""

    def __init__(self, book: PlanBook) -> None:
        self.path = book.bundle.path
        self.manifest = replace(book.bundle.manifest, entries=())


def without_entries(book: PlanBook) -> Any:
    return _Empty(book)


def blocks(served: Served) -> Iterator[tuple[int, dict[str, Run]]]:
    """The decoder block at each batch, by torch alone and by the book, as long as there is time."""
    for batch in BATCHES:
        if served.clock.left() < 5:
            print(f"no time for the block at batch {batch}", file=sys.stderr)
            return
        plain = make_block(batch, functional.scaled_dot_product_attention)
        asking = make_block(batch, served.book.scaled_dot_product_attention)
        apply(asking, served.book)
        x = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16)
        yield batch, {"torch": lambda _, m=plain, x=x: m(x), "book": lambda _, m=asking, x=x: m(x)}


def part_block(served: Served) -> list[Row]:
    """The decoder block of Llama-3.1-8B with random weights, end to end."""
    rows = []
    for batch, runs in blocks(served):
        expected = runs["torch"](0).float()
        difference = (expected - runs["book"](0).float()).norm() / expected.norm()
        before = served.book.counters.steps["shipped"]
        runs["book"](0)
        shipped = served.book.counters.steps["shipped"] - before
        times = race(runs, calls=5)
        row: Row = {"batch": batch, "difference": difference.item(), "shipped_calls": shipped}
        for kind in ("eager_us", "captured_us"):
            row |= {f"{name}_{kind}": times[name][kind] for name in times}
        rows.append(row)
    return rows


def part_kernels(served: Served) -> list[Row]:
    """What a captured decoder block launches, by torch alone and with the book: the kernels that differ, and all."""
    rows = []
    for batch, runs in blocks(served):
        seen = {name: launched(run) for name, run in runs.items()}
        for kernel in sorted({kernel for kernels in seen.values() for kernel in kernels}):
            counts = {name: kernels.get(kernel, []) for name, kernels in seen.items()}
            if len(counts["torch"]) != len(counts["book"]):
                rows.append(kernel_row(batch, kernel, counts))
        everything = {name: [us for times in kernels.values() for us in times] for name, kernels in seen.items()}
        rows.append(kernel_row(batch, "all", everything))
    return rows


def kernel_row(batch: int, kernel: str, times: dict[str, list[float]]) -> Row:
    row: Row = {"batch": batch, "kernel": kernel}
    for name, us in times.items():
        row |= {f"{name}_launches": len(us), f"{name}_us": sum(us)}
    return row


PARTS: dict[str, Callable[[Any], list[Row]]] = {
    "host": part_host,
    "open": part_open,
    "load": part_load,
    "fresh": part_fresh,
    "problems": part_problems,
    "block": part_block,
    "kernels": part_kernels,
}
"""All parts by name. `host` and `open` make what they measure and take None."""
