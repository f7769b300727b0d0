"""What fresh processes find out."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from serving.forms import copies_of, outputs_of
from serving.timing import Row
from tunefarm.engines import make_engine
from tunefarm.engines.cudnn_blob import read_blob
from tunefarm.model.job import Search
from tunefarm.ops import operation_of
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime import Bundle, PlanBook
from tunefarm.runtime.manifest import Entry

SCRIPT = Path(__file__).resolve().parents[1] / "bench-serve"


def child(what: str, *arguments: object) -> Row:
    """What a fresh process finds out."""
    environment = {**os.environ, "CUDA_CACHE_DISABLE": "1"}
    command = [sys.executable, str(SCRIPT), "--child", what, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the process for {what} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_child(what: str, path: str, key: str, *places: str) -> Row:
    if what == "open":
        before, began = resident_mb(), time.perf_counter()
        book = PlanBook.open(path, key)
        opened_ms = (time.perf_counter() - began) * 1e3
        return {"open_ms": opened_ms, "memory_mb": resident_mb() - before, "entries": len(book.bundle.manifest.entries)}
    bundle = Bundle.open(path, key)
    if what == "fresh":
        return run_fresh(PlanBook(bundle), [bundle.manifest.entries[int(place)] for place in places])
    (entry,) = bundle.manifest.entries
    problem, inputs = entry.problem, copies_of(entry.problem)[0]
    # What any first use of cuDNN pays, whoever makes the plan: context, handle, libraries.
    engine = make_engine("cudnn")
    other = MatmulProblem(m=8, n=64, k=64)
    engine.load(other, engine.build(other, engine.propose(other, Search()).candidates[0]))
    torch.cuda.synchronize()
    began = time.perf_counter()
    if what == "shipped":
        book = PlanBook(bundle, engine=lambda: engine)
        book.warm([problem])
        loaded_ms = (time.perf_counter() - began) * 1e3
        book.run(problem, inputs)
    else:
        executable = engine.load(problem, engine.build(problem, entry.candidate))
        loaded_ms = (time.perf_counter() - began) * 1e3
        size = executable.workspace_bytes
        workspace = torch.zeros(size, dtype=torch.uint8, device="cuda") if size else None
        executable.bind(inputs, outputs_of(problem), workspace)()
    torch.cuda.synchronize()
    first_ms = (time.perf_counter() - began) * 1e3
    if what == "shipped":
        assert book.counters.steps["shipped"] == 1, book.explain(problem)
    return {"load_ms": loaded_ms, "first_call_ms": first_ms}


def run_fresh(book: PlanBook, entries: Sequence[Entry]) -> Row:
    """Call each entry's problem once, and tell what ran."""
    ran = []
    for entry in entries:
        problem, inputs = entry.problem, copies_of(entry.problem)[0]
        before = book.counters.steps["shipped"]
        results = book.run(problem, inputs)
        expected = operation_of(problem).baselines(problem)[0].run(inputs)
        errors = [(results[n].float() - r.float()).norm() / r.float().norm() for n, r in expected.items()]
        decision = book.explain(problem).decision
        assert decision is not None
        assert decision.candidate is not None, book.explain(problem)
        blob = book.bundle.plan_bytes(entry)
        facts = read_blob(blob) if decision.candidate.engine == "cudnn" else None
        ran.append(
            {
                "label": decision.candidate.label,
                "step": str(decision.step),
                "hits": book.counters.steps["shipped"] - before,
                "engine_id": facts.engine_id if facts else None,
                "knobs": [list(knob) for knob in facts.knobs] if facts else [],
                "digest": hashlib.sha256(blob).hexdigest(),
                "difference": max(error.item() for error in errors),
            }
        )
    return {"entries": ran}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
