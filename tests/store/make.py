"""Words of a store with few arguments, and stores to put them in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests import targets
from tests.strategies import Toy, toy_from_dict
from tunefarm.model.candidate import Candidate, Plan
from tunefarm.model.job import Protocol
from tunefarm.model.trial import Block, Measurement, Outcome, Stage, Standing, Status, Trial, Verdict
from tunefarm.store import Store, StoredPlan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

TARGET = replace(targets.H200, profile='{"deviceVer":900,"multiProcessorCount":132}')


def open_store(path: Path | str, *, create: bool = False) -> Store:
    return Store.open(path, create=create, problem_from_dict=toy_from_dict)


def candidate(name: str = "eng0", **fields: Any) -> Candidate:
    return Candidate(engine="cudnn", name=name, **fields)


def trial(
    *,
    name: str = "eng0",
    n: int = 1024,
    us: float = 10.0,
    minutes: int = 0,
    standing: Standing | None = Standing.WON,
    **fields: Any,
) -> Trial:
    """A measured trial of a toy, finished some minutes after noon."""
    measurement = Measurement(us, us - 1, us + 1, "graph", (Block(0, 10, us),))
    outcome = Outcome(
        candidate(name),
        Status.MEASURED,
        Stage.TIME,
        verdict=Verdict(True, ""),
        measurement=measurement,
        standing=standing,
    )
    words: dict[str, Any] = {
        "sweep": "s1",
        "job": "toys",
        "name": f"toy.{n}",
        "problem": Toy(n),
        "target": TARGET.key,
        "protocol": Protocol(),
        "outcome": outcome,
        "finished_at": NOON + timedelta(minutes=minutes),
    }
    return Trial(**{**words, **fields})


def failed(*, name: str = "eng9", status: Status = Status.CRASHED, **fields: Any) -> Trial:
    """A trial that ended without a measurement."""
    outcome = Outcome(candidate(name), status, Stage.VERIFY, "it fell over", "SIGSEGV")
    return trial(outcome=outcome, **fields)


def stored_plan(blob: bytes, name: str = "eng0") -> StoredPlan:
    return StoredPlan(Plan(candidate(name), blob, 256, 1.5, (("CFG", 3),)), Toy(1024).key, TARGET.key)
