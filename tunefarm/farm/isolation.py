"""A process that may crash or hang, behind one small seam. Knows nothing of GPUs, cuDNN or Ray."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from tunefarm.farm.child_process import Emitted, Raised, serve

R = TypeVar("R")
Emit = Callable[[object], None]
"""Given to a job in the child: sends a picklable event to the parent at once."""
Job = Callable[[Emit], R]
"""What a child runs: picklable, called with `Emit`, its result picklable too."""

PRELOAD = ("torch", "tunefarm.farm.work")
"""Imported once by the fork server, so that a new child starts in milliseconds. Nothing here may start CUDA."""

STALL_S = 30.0
"""How long a child may leave a message half read, or half written."""
LOOK_EVERY_S = 2.0
"""How often a child that is waited for is looked at. One that was stopped at two looks in a row has been stopped."""
KEPT_OUTPUT = 2000
"""Bytes that are kept of what a child prints: its last words."""

_KILL_WAIT_S = 5.0
_FAREWELL_S = 2.0
_READ = 1 << 16
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
        self._output: Connection | None = None
        self._printed = b""
        """The end of what the process printed since its present job began."""
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
            except OSError:  # it died while idle, or does not read: nobody's fault in hand, so a fresh one gets the job
                self.stop()
                connection = self._started()
                connection.send(job)
            self.jobs_run += 1
            self._printed = b""
            result: R = self._await(connection, deadline_s, on_event)
        finally:
            self._busy = False
        return result

    def run_again(self, job: Job[R], deadline_s: float) -> R:
        """Run a job, and once more, in a fresh process, if the process dies.

        It may have been killed from outside, or ruined by an earlier job: only what dies twice is called the cause.
        Raises as `run` does.
        """
        try:
            return self.run(job, deadline_s)
        except ChildDiedError:
            return self.run(job, deadline_s)

    def _await(self, connection: Connection, deadline_s: float, on_event: Callable[[Any], float | None] | None) -> Any:
        """The result of the job that was sent."""
        end = time.monotonic() + deadline_s
        while True:
            if not self._has_word(connection, end):
                self.stop()
                raise ChildTimedOutError(deadline_s)
            message = self._receive(connection)
            if message is None:
                raise self._obituary()
            if isinstance(message, Emitted):
                extension = on_event(message.value) if on_event else None
                if extension is not None:
                    deadline_s = extension
                    end = time.monotonic() + extension
            elif isinstance(message, Raised):
                raise JobRaisedError(message.kind, message.message, message.trace)
            else:
                return message.value

    def _has_word(self, connection: Connection, end: float) -> bool:
        """Wait until the child says something or ends; False if the time is over before."""
        stopped = False
        while (left_s := end - time.monotonic()) > 0:
            watched = [c for c in (connection, self._process.sentinel, self._output) if c is not None]
            ready = wait(watched, timeout=min(LOOK_EVERY_S, left_s))
            if self._output in ready:
                self._listen()
            if connection in ready or self._process.sentinel in ready:
                return True
            if not ready:
                was_stopped, stopped = stopped, _is_stopped(self._process.pid)
                if was_stopped and stopped:
                    self.stop()
                    raise ChildDiedError("SIGSTOP", None, "somebody stopped it, and it was killed")
        return bool(wait([connection, self._process.sentinel], timeout=0))

    def stop(self) -> None:
        """End the process and all it started, at once. The next job gets a new one."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None:
            _kill_group(process.pid)
            process.join(_KILL_WAIT_S)
        if self._output is not None:
            self._output.close()
            self._output = None

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
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=True)
        _bound_stalls(ours)
        output, printing = context.Pipe(duplex=False)
        os.set_blocking(output.fileno(), False)
        process = context.Process(
            target=serve, args=(theirs, printing, self._env, self._setup), name="tunefarm-child", daemon=False
        )
        with _start_lock, _without_main():
            if self._closed:
                raise ChildClosedError("closed")
            context.set_forkserver_preload(list(PRELOAD))
            process.start()
            self._process, self._connection, self._output, self.jobs_run = process, ours, output, 0
        theirs.close()
        printing.close()
        return ours

    def _listen(self) -> None:
        """Take in what the process printed; a pipe that nobody empties would stop it."""
        assert self._output is not None
        try:
            printed = os.read(self._output.fileno(), _READ)
        except BlockingIOError:
            return
        if printed:
            self._printed = (self._printed + printed)[-KEPT_OUTPUT:]
        else:
            self._output.close()
            self._output = None

    def _receive(self, connection: Connection) -> Any:
        """The next message, or None when the process is gone and said no more."""
        try:
            if connection.poll(0):
                return connection.recv()
        except BlockingIOError:  # the rest of a message that it began does not come
            self.stop()
            raise ChildTimedOutError(STALL_S) from None
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
        while self._output is not None and wait([self._output], timeout=0):
            self._listen()
        last_words = _last_line(self._printed)
        self.stop()
        return ChildDiedError(name, code, last_words)


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


def _bound_stalls(connection: Connection) -> None:
    """Let neither reading nor writing wait for ever for a process that was stopped in the midst of a message."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        timeval = struct.pack("ll", int(STALL_S), 0)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0] == "T"
        )
    except (OSError, IndexError):
        return False


def _last_line(printed: bytes) -> str:
    """The last line that the child printed, which for native crashes is often the cause."""
    lines = printed.decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
