"""A process that may crash or hang, behind one small seam. Knows nothing of GPUs, cuDNN or Ray."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

R = TypeVar("R")
Emit = Callable[[object], None]
"""Given to a job in the child: sends a picklable event to the parent at once."""
Job = Callable[[Emit], R]
"""What a child runs: picklable, called with `Emit`, its result picklable too."""

PRELOAD = ("torch", "tunefarm.farm.work")
"""Imported once by the fork server, so that a new child starts in milliseconds. Nothing here may start CUDA."""

_PR_SET_PDEATHSIG = 1
_KILL_WAIT_S = 5.0
_FAREWELL_S = 2.0
_start_lock = threading.Lock()


class ChildFailedError(Exception):
    """The child has no result. Base of all the ways."""


class ChildDiedError(ChildFailedError):
    """The process went away: of a signal, or by itself."""

    def __init__(self, signal_name: str | None, exit_code: int | None, last_words: str) -> None:
        self.signal_name = signal_name
        self.last_words = last_words
        how = f"died of {signal_name}" if signal_name else f"ended by itself with exit code {exit_code}"
        super().__init__(f"its process {how}" + (f": {last_words}" if last_words else ""))


class ChildTimedOutError(ChildFailedError):
    """The deadline passed; the process was killed."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"no answer in {deadline_s:g} s; its process was killed")


class ChildClosedError(ChildFailedError):
    """The child was closed for good, from another thread perhaps: its owner is shutting down."""


class JobRaisedError(ChildFailedError):
    """The job raised. Holds text only: the exception itself may not be picklable, or pin a GPU's memory."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        self.kind = kind
        self.trace = trace
        super().__init__(f"{kind}: {message}" if message else kind)


@dataclass(frozen=True)
class _Event:
    value: object


@dataclass(frozen=True)
class _Done:
    value: object


@dataclass(frozen=True)
class _Raised:
    kind: str
    message: str
    trace: str


class Child:
    """One process that runs jobs one at a time, and is replaced when it died, hung or grew old.

    For use by one thread at a time, but for `close`.
    """

    def __init__(self, env: Mapping[str, str] | None = None, setup: Callable[[], None] | None = None) -> None:
        """Nothing starts before the first job.

        Args:
            env: environment variables of the child, set before anything of CUDA starts.
            setup: called once in each new child, before its first job.
        """
        self._env = dict(env or {})
        self._setup = setup
        self._process: Any = None
        self._connection: Connection | None = None
        self._log: int | None = None
        self._busy = False
        self._closed = False
        self.jobs_run = 0
        """Jobs since the current process started."""

    def run(self, job: Job[R], deadline_s: float, on_event: Callable[[Any], float | None] | None = None) -> R:
        """Run a job and wait for its result.

        Args:
            job: what to run.
            deadline_s: seconds until the process is killed.
            on_event: told of each event that the job emits; a number that it returns is the new deadline, in seconds
                from now.

        Raises:
            ChildDiedError: the process went away.
            ChildTimedOutError: the deadline passed.
            JobRaisedError: the job raised anything, also if it can't be pickled.
            ChildClosedError: it was closed before or meanwhile.
        """
        self._busy = True  # from here on `close` kills: a child that does not read would keep us in `send`
        try:
            connection = self._started()
            try:
                connection.send(job)
            except OSError:  # it died while idle: nobody's fault in hand, so a fresh one gets the job
                self.stop()
                connection = self._started()
                connection.send(job)
            self.jobs_run += 1
            result: R = self._await(connection, deadline_s, on_event)
        finally:
            self._busy = False
        return result

    def _await(self, connection: Connection, deadline_s: float, on_event: Callable[[Any], float | None] | None) -> Any:
        """The result of the job that was sent."""
        end = time.monotonic() + deadline_s
        while True:
            ready = wait([connection, self._process.sentinel], timeout=max(0.0, end - time.monotonic()))
            if not ready:
                self.stop()
                raise ChildTimedOutError(deadline_s)
            message = self._receive(connection)
            if message is None:
                raise self._obituary()
            if isinstance(message, _Event):
                extension = on_event(message.value) if on_event else None
                if extension is not None:
                    deadline_s = extension
                    end = time.monotonic() + extension
            elif isinstance(message, _Raised):
                raise JobRaisedError(message.kind, message.message, message.trace)
            else:
                return message.value

    def stop(self) -> None:
        """End the process and all it started, at once. The next job gets a new one."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None:
            _kill_group(process.pid)
            process.join(_KILL_WAIT_S)
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def close(self) -> None:
        """End the process for good: at once if it has a job, else by letting it go home. Does not wait for the latter.

        Safe from any thread: a job under way ends with `ChildClosedError`.
        """
        with _start_lock:
            self._closed = True
            process, connection = self._process, self._connection
        if process is None or connection is None:
            return
        if self._busy:
            _kill_group(process.pid)
        else:
            connection.close()  # it hears that, tidies up what its libraries hold of the system, and ends

    def wait_closed(self) -> None:
        """After `close`: see that the process is gone. One that does not go by itself is killed."""
        if self._process is not None and not self._busy:
            self._process.join(_FAREWELL_S)
            self.stop()

    @property
    def pid(self) -> int | None:
        """The current process's id, if one is running."""
        return self._process.pid if self._process is not None else None

    def _started(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self._closed:
            raise ChildClosedError("closed")
        self._log, log = tempfile.mkstemp(prefix="tunefarm-child-", suffix=".log")  # the child removes its name
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=True)
        process = context.Process(
            target=_serve, args=(theirs, log, self._env, self._setup), name="tunefarm-child", daemon=False
        )
        with _start_lock, _without_main():
            if self._closed:
                raise ChildClosedError("closed")
            context.set_forkserver_preload(list(PRELOAD))
            process.start()
            self._process, self._connection, self.jobs_run = process, ours, 0
        theirs.close()
        return ours

    def _receive(self, connection: Connection) -> Any:
        """The next message, or None when the process is gone and said no more."""
        try:
            if connection.poll(0):
                return connection.recv()
        except (EOFError, OSError):
            pass
        except Exception as error:  # what it sent does not unpickle here: its job's failure
            self.stop()
            raise JobRaisedError(type(error).__name__, f"its result can't be read: {error}", "") from error
        return None

    def _obituary(self) -> ChildFailedError:
        if self._closed:
            self.stop()
            return ChildClosedError("closed")
        self._process.join(_KILL_WAIT_S)
        code = self._process.exitcode
        name = None
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
        last_words = _last_line(self._log) if self._log is not None else ""
        self.stop()
        return ChildDiedError(name, code, last_words)


def _serve(connection: Connection, log: str, env: Mapping[str, str], setup: Callable[[], None] | None) -> None:
    """The child's life: jobs in, results out, until the parent hangs up."""
    os.setpgid(0, 0)  # so that the parent can kill what the child itself started
    _die_with_parent()
    os.environ.update(env)
    # Native libraries print to both; the parent's streams are for people and data.
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    Path(log).unlink()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if setup is not None:
        setup()

    def emit(event: object) -> None:
        connection.send(_Event(event))

    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        except BaseException as error:  # noqa: BLE001 - a job that can't be unpickled is that job's failure
            connection.send(_raised(error))
            continue
        os.ftruncate(descriptor, 0)
        try:
            answer: object = _Done(job(emit))
        except BaseException as error:  # noqa: BLE001 - whatever a job raises is its result
            answer = _raised(error)
        try:
            connection.send(answer)
        except (EOFError, BrokenPipeError):
            return
        except Exception as error:  # noqa: BLE001 - a result that can't be pickled
            connection.send(_raised(error))


def _die_with_parent() -> None:
    """Make sure that no kill of the parent leaves this process, or what it started, behind.

    Two ways, since neither does alone. A thread sees the parent's end and kills the group, but it can't run while a
    native call holds the interpreter's lock. The kernel needs no lock, but it goes by the fork server, which ends with
    the parent only if no child keeps the server's life line open: each is handed that, for fork servers of its own.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]  # noqa: SLF001
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _raised(error: BaseException) -> _Raised:
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - an exception whose text raises
        message = ""
    return _Raised(type(error).__name__, message, "".join(traceback.format_exception(error)))


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide `__main__` while a process starts.

    A new child would import the parent's main script again: Ray's worker script (0.2 s), or a user's without a guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _kill_group(pid: int) -> None:
    for kill, target in ((os.killpg, pid), (os.kill, pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(target, signal.SIGKILL)


def _last_line(log: int) -> str:
    """The last line that the child printed, which for native crashes is often the cause."""
    end = os.fstat(log).st_size
    lines = os.pread(log, 2000, max(0, end - 2000)).decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
