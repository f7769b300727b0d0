"""The child's side of `isolation`: jobs in, results out, until the parent hangs up."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, parent_process
from multiprocessing.connection import Connection, wait

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Emitted:
    """An event of the job under way."""

    value: object


@dataclass(frozen=True)
class Done:
    """A job's result."""

    value: object


@dataclass(frozen=True)
class Raised:
    """What a job raised, as text."""

    kind: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Text of an exception, which itself may not be picklable."""
        try:
            message = str(error).strip()
        except Exception:  # noqa: BLE001 - an exception whose text raises
            message = ""
        return cls(type(error).__name__, message, "".join(traceback.format_exception(error)))


def serve(connection: Connection, output: Connection, env: Mapping[str, str], setup: Callable[[], None] | None) -> None:
    """The child's life.

    Args:
        connection: where jobs come from and answers go.
        output: takes what this process, and its native libraries, print to either stream.
        env: variables of its environment.
        setup: called once before the first job.
    """
    os.setpgid(0, 0)  # so that the parent can kill what the child itself started
    _die_with_parent()
    os.environ.update(env)
    # The parent's streams are for people and data.
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    if setup is not None:
        setup()

    def emit(event: object) -> None:
        connection.send(Emitted(event))

    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        except BaseException as error:  # noqa: BLE001 - a job that can't be unpickled is that job's failure
            connection.send(Raised.of(error))
            continue
        try:
            answer: object = Done(job(emit))
        except BaseException as error:  # noqa: BLE001 - whatever a job raises is its result
            answer = Raised.of(error)
        try:
            connection.send(answer)
        except (EOFError, BrokenPipeError):
            return
        except Exception as error:  # noqa: BLE001 - a result that can't be pickled
            connection.send(Raised.of(error))


def _die_with_parent() -> None:
    """Make sure that no kill of the parent leaves this process, or what it started, behind.

    Two ways, since neither does alone. A thread sees the parent's end and kills the group, but it can't run while a
    native call holds the interpreter's lock. The kernel needs no lock, but it goes by the fork server, which ends with
    the parent only if no child keeps the server's life line open: each is handed that, for fork servers of its own.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]  # noqa: SLF001
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
