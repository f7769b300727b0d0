"""What a call costs the host, on tensors so small that the device waits for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from serving.bundles import Served, entry_of, write_bundle
from serving.forms import copies_of, form_of, outputs_of
from serving.timing import Row, Run, host_us
from tunefarm.engines import make_engine
from tunefarm.engines.cudnn_launch import enqueue_addresses
from tunefarm.engines.target import describe_target
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops.matmul import MatmulProblem
from tunefarm.ops.sdpa import SdpaProblem
from tunefarm.runtime import PlanBook

LINEAR = MatmulProblem(m=16, n=512, k=512, transpose_b=True)
BIASED = MatmulProblem(m=16, n=512, k=512, transpose_b=True, bias=True)
ATTENTION = SdpaProblem(heads_q=8, seq_q=64, head_dim=64)
FLASH = Candidate("torch", "sdpa-flash", proposed_by="torch")


def part_host(_: Served | None) -> list[Row]:
    """Host time of one call: cudnn's `execute` of a sequence and of a mapping, its addresses; the book; torch's op."""
    engine = make_engine("cudnn")
    rows = []
    for problem in (LINEAR, BIASED, ATTENTION):
        plan = engine.build(problem, engine.propose(problem, Search()).candidates[0])
        row: Row = {"problem": problem.label, **bare_us(problem, plan), **asked_us(problem, plan)}
        row |= {"torch_us": host_us(by_torch(problem)), "torch_held_us": None}
        row["over_execute_us"] = row["book_us"] - min(row["sequence_us"], row["mapping_us"])
        row["over_torch_us"] = row["book_us"] - row["torch_us"]
        rows.append(row)
    rows.append(held_row(make_engine("torch").build(ATTENTION, FLASH)))
    return rows


def bare_us(problem: Problem, plan: Plan) -> Row:
    """The frontend's own forms, over tensors that are all there."""
    import cudnn

    handle = cudnn.create_handle()
    graph = cudnn.pygraph(handle=handle)
    graph.deserialize(handle, plan.blob)
    tensors = {**copies_of(problem)[0], **outputs_of(problem)}
    mapping = {spec.uid: tensors[spec.name] for spec in problem.tensors}
    operands, uids = tuple(mapping.values()), tuple(mapping)
    size = graph.get_workspace_size()
    workspace = torch.zeros(size, dtype=torch.uint8, device="cuda") if size else None
    by_addresses = enqueue_addresses(cudnn, graph, handle, uids)
    stream = torch.cuda.current_stream().cuda_stream
    cudnn.set_stream(handle, stream)
    return {
        "sequence_us": host_us(lambda _: graph.execute(operands, workspace, handle, tensor_uids=uids)),
        "mapping_us": host_us(lambda _: graph.execute(mapping, workspace, handle)),
        "addresses_us": host_us(lambda _: by_addresses(operands, workspace, stream)) if by_addresses else None,
    }


def asked_us(problem: Problem, plan: Plan) -> Row:
    """A book that has the plan. Every call must be a hit."""
    with tempfile.TemporaryDirectory() as folder:
        entry = entry_of(problem, describe_target().key, plan, {})
        path, key = write_bundle(Path(folder), "one", [entry], {plan.digest: plan.blob})
        book = PlanBook.open(path, key)
        us = host_us(call_of(problem, book.scaled_dot_product_attention, lambda form: form.ask(book)))
    assert book.counters.causes == {}, book.counters
    return {"book_us": us}


def by_torch(problem: Problem) -> Run:
    return call_of(problem, functional.scaled_dot_product_attention, lambda form: form.by_torch)


def call_of(problem: Problem, attend: Callable, function: Callable) -> Run:
    """Attention as users call it, not by problem; others in their form."""
    if isinstance(problem, SdpaProblem):
        q, k, v = copies_of(problem)[0].values()
        return lambda _: attend(q, k, v)
    form = form_of(problem)
    return form.over(function(form))


def held_row(plan: Plan) -> Row:
    """Attention held to one of torch's backends: by the book, and as torch's users hold it."""
    attend = by_torch(ATTENTION)

    def held(i: int) -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            attend(i)

    row: Row = {"problem": f"{ATTENTION.label} held to flash", **asked_us(ATTENTION, plan)}
    row |= {"torch_us": host_us(attend), "torch_held_us": host_us(held)}
    row["over_torch_us"] = row["book_us"] - row["torch_us"]
    return row
