"""Trials with few arguments, for what reads them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests import targets
from tunefarm.model.candidate import Candidate, refused_candidate
from tunefarm.model.job import Protocol
from tunefarm.model.trial import Measurement, Outcome, OutputError, Stage, Standing, Status, Trial, Verdict
from tunefarm.ops.matmul import MatmulProblem

START = datetime(2030, 1, 1, tzinfo=UTC)

TARGET = replace(targets.H200, torch="2.13.0")


def cudnn(name, *, first=False, dynamic=False):
    return Candidate(engine="cudnn", name=name, engine_id=4, proposed_by="A", rank=0 if first else 3, dynamic=dynamic)


def torch(name):
    return Candidate(engine="torch", name=name, proposed_by="torch")


def trial(
    candidate,
    time_us=None,
    *,
    n=8,
    name="",
    status=Status.MEASURED,
    stage=Stage.TIME,
    standing=Standing.SLOWER,
    reason="",
    signal=None,
    worker="GPU-1",
    target=TARGET.key,
    protocol=None,
    build_ms=450.0,
    l2=1.66e-3,
    minute=0,
):
    """A trial of one candidate; with a time it was measured."""
    measured = time_us is not None
    return Trial(
        sweep="20300101T000000-abcdef",
        job="test",
        name=name or f"matmul-{n}",
        problem=MatmulProblem(m=n, n=64, k=32),
        target=target,
        protocol=protocol or Protocol(),
        outcome=Outcome(
            candidate=candidate,
            status=status,
            stage=stage,
            reason=reason,
            signal=signal,
            verdict=Verdict(True, "", (OutputError("y", l2, l2, 1.0, 0.0),)) if measured else None,
            measurement=Measurement(
                time_us, time_us * 0.99, time_us * 1.01, "graph", (), 5.1, 0.2, time_us + 2, time_us + 0.1
            )
            if measured
            else None,
            standing=standing if measured else None,
            why="12.3 % slower than the winner" if standing is Standing.SLOWER and measured else "",
        ),
        finished_at=START + timedelta(minutes=minute),
        worker=worker,
        plan_digest="0" * 64 if measured else None,
        plan_bytes=49_356 if measured else None,
        workspace_bytes=0 if measured else None,
        build_ms=build_ms,
        resolved_knobs=(("KERNEL_CFG", 3), ("SPLIT_K_SLC", 1)) if candidate.engine == "cudnn" else (),
    )


def failed(candidate, status, stage, reason, **more):
    return trial(candidate, status=status, stage=stage, reason=reason, **more)


def refused(engine, reason, **more):
    return failed(refused_candidate(engine), Status.DECLINED, Stage.PROPOSE, reason, build_ms=None, **more)


def small_sweep():
    """Three problems: one that cuDNN wins, one that torch wins, one that nobody wins."""
    return [
        trial(cudnn("eng4_k24=3"), 18.8, n=8, name="llama-3-8b.mlp.up", standing=Standing.WON),
        trial(cudnn("eng4_k24=2", first=True), 21.7, n=8, name="llama-3-8b.mlp.up"),
        trial(
            cudnn("eng32_k2=2_k6=0_k13=2_k14=0_k22=2"), 263.1, n=8, name="llama-3-8b.mlp.up", standing=Standing.SCREENED
        ),
        trial(torch("eager"), 30.2, n=8, name="llama-3-8b.mlp.up"),
        trial(torch("compile"), 27.3, n=8, name="llama-3-8b.mlp.up"),
        failed(cudnn("eng9"), Status.CRASHED, Stage.LOAD, "its process died of SIGSEGV", n=8, signal="SIGSEGV",
               name="llama-3-8b.mlp.up"),
        trial(torch("eager"), 34.5, n=64, name="llama-3-8b.mlp.down", standing=Standing.WON),
        trial(cudnn("eng4", first=True), 39.3, n=64, name="llama-3-8b.mlp.down"),
        failed(cudnn("eng7"), Status.WRONG, Stage.VERIFY, "y: relative l2 error 0.31, over 3.3e-3", n=64,
               name="llama-3-8b.mlp.down"),
        failed(torch("eager"), Status.FAILED, Stage.REFERENCE, "OutOfMemoryError: 80 GiB asked", n=9, name="huge"),
        refused("cudnn", "no engine of cuDNN 9.27.0 supports it: rank 7", n=9, name="huge"),
    ]  # fmt: skip
