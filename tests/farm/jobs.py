"""Jobs for children: every way to go wrong that a native library has shown, and some that Python adds."""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import util
from pathlib import Path

from tunefarm.farm.isolation import Emit


@dataclass(frozen=True)
class Answer:
    value: object

    def __call__(self, _emit: Emit) -> object:
        return self.value


@dataclass(frozen=True)
class Pid:
    def __call__(self, _emit: Emit) -> int:
        return os.getpid()


@dataclass(frozen=True)
class Environment:
    name: str

    def __call__(self, _emit: Emit) -> str | None:
        return os.environ.get(self.name)


@dataclass(frozen=True)
class Die:
    signal: int

    def __call__(self, _emit: Emit) -> None:
        sys.stderr.write("free(): invalid pointer\n")
        sys.stderr.flush()
        signal.signal(self.signal, signal.SIG_DFL) if self.signal != signal.SIGKILL else None
        os.kill(os.getpid(), self.signal)
        time.sleep(60)


@dataclass(frozen=True)
class Exit:
    code: int

    def __call__(self, _emit: Emit) -> None:
        os._exit(self.code)


@dataclass(frozen=True)
class Sleep:
    seconds: float

    def __call__(self, _emit: Emit) -> None:
        time.sleep(self.seconds)


@dataclass(frozen=True)
class Emitting:
    events: int
    pause: float = 0.0

    def __call__(self, emit: Emit) -> str:
        for i in range(self.events):
            emit(i)
            time.sleep(self.pause)
        return "done"


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("a local function inside")
        self.inner = lambda: None


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED = {
    "RuntimeError": RuntimeError("CUDA error: an illegal memory access"),
    "MemoryError": MemoryError(),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(3),
    "UnpicklableError": UnpicklableError(),
    "TextlessError": TextlessError(),
}


@dataclass(frozen=True)
class Raise:
    kind: str

    def __call__(self, _emit: Emit) -> None:
        raise RAISED[self.kind]


@dataclass(frozen=True)
class ReturnUnpicklable:
    def __call__(self, _emit: Emit) -> object:
        return lambda: None


@dataclass(frozen=True)
class Babble:
    """Prints megabytes to both streams, as native libraries do."""

    def __call__(self, _emit: Emit) -> str:
        for descriptor in (1, 2):
            for _ in range(200):
                os.write(descriptor, b"noise " * 2000)
        return "done"


@dataclass(frozen=True)
class BabbleForEver:
    """Prints and never answers."""

    def __call__(self, _emit: Emit) -> None:
        while True:
            os.write(1, b"noise " * 2000)


@dataclass(frozen=True)
class StopInTheMidst:
    """Is stopped when the first bytes of a message are written."""

    def __call__(self, emit: Emit) -> None:
        (cell,) = emit.__closure__  # type: ignore[attr-defined]
        os.write(cell.cell_contents.fileno(), struct.pack("!i", 1000) + b"some")
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)


@dataclass(frozen=True)
class StopItself:
    """Is stopped by a signal, as by job control, at the first time or always."""

    once: str = ""
    """A file that tells that it was stopped before."""

    def __call__(self, _emit: Emit) -> str:
        if not self.once or not Path(self.once).exists():
            Path(self.once or os.devnull).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        return "done"


@dataclass(frozen=True)
class SpawnAndSleep:
    """Starts a process of its own, tells its pid, and hangs."""

    def __call__(self, emit: Emit) -> None:
        emit(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
        time.sleep(600)


@dataclass(frozen=True)
class HangHoldingTheLock:
    """Hangs in native code with the interpreter's lock held, as cuDNN's builds hold it."""

    def __call__(self, emit: Emit) -> None:
        emit(os.getpid())
        time.sleep(0.2)
        ctypes.PyDLL(None).sleep(600)


@dataclass(frozen=True)
class AtExit:
    """Leaves a file when its process ends as processes should."""

    path: str

    def __call__(self, _emit: Emit) -> None:
        util.Finalize(None, Path(self.path).touch, exitpriority=0)


def _refuse() -> None:
    raise ValueError("not here")


class Unreadable:
    def __reduce__(self) -> tuple[object, tuple[()]]:
        return _refuse, ()


@dataclass(frozen=True)
class ReturnUnreadable:
    def __call__(self, _emit: Emit) -> object:
        return Unreadable()
