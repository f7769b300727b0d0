"""The record that a sweep keeps of itself in the store, so that others can see how it is."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Literal

import psutil
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from tunefarm.farm.progress import SweepState
from tunefarm.farm.roster import WorkerState

SILENT_S = 60.0
"""A driver that told nothing for so long is dead, or cut off from its store."""
GONE_S = 5.0
"""The same, if its process is known to be gone."""


class Ended(StrEnum):
    """How a sweep ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Liveness(StrEnum):
    """How a sweep is, seen from outside."""

    RUNNING = "running"
    SILENT = "silent"
    """Nothing was heard for `SILENT_S`: its driver is dead, or can't write the store."""
    DEAD = "dead"
    """Its driver ran on this host and is gone."""
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class Driver:
    """The process that runs a sweep."""

    host: str
    pid: int
    began: float
    """When the process began, seconds since 1970: pids are used again."""

    @classmethod
    def here(cls) -> Driver:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def is_gone(self) -> bool:
        """Whether it is known to be gone: only its own host can tell."""
        if self.host != socket.gethostname():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.began) > 1.0
        except (psutil.NoSuchProcess, OverflowError, ValueError):
            return True
        except psutil.Error:
            return False


@dataclass(frozen=True)
class SweepStatus:
    """How a sweep was when it told last."""

    sweep: str
    job: str
    driver: Driver
    begun_at: AwareDatetime
    beat_at: AwareDatetime
    """When its driver lived, by the driver's clock."""
    ended: Ended | None
    state: SweepState
    workers: tuple[WorkerState, ...] = ()
    version: Literal[1] = 1

    def age_s(self, now: datetime | None = None) -> float:
        """Seconds since its driver was heard of; clocks of two hosts may differ by some."""
        return max(0.0, ((now or datetime.now(UTC)) - self.beat_at).total_seconds())

    def liveness(self, now: datetime | None = None) -> Liveness:
        """How it is now."""
        if self.ended is not None:
            return Liveness(self.ended.value)
        age = self.age_s(now)
        if age > GONE_S and self.driver.is_gone:
            return Liveness.DEAD
        return Liveness.SILENT if age > SILENT_S else Liveness.RUNNING

    def to_json(self) -> bytes:
        """The record as it is stored."""
        return _adapter().dump_json(self)


def read_status(record: bytes) -> SweepStatus:
    """The status of a stored record.

    Raises:
        ValueError: it is none, or one of another version. One line.
    """
    try:
        return _adapter().validate_json(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None


@cache
def _adapter() -> TypeAdapter[SweepStatus]:
    return TypeAdapter(SweepStatus)
