"""Sees to it that no helper process of a farm outlives its driver, however that ends.

Workers end with their driver by themselves, but Ray's helpers wait a minute for a head that is gone. The warden is a
process of its own: it watches what the driver starts until the farm is up, waits for the driver's end, and kills those
that are left. They can't be found afterwards: orphans have another parent, and Ray's processes overwrite their names
and environments.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

_LOOK_EVERY_S = 0.25
_FAREWELL_S = 1.0
"""How long processes may end by themselves once the driver is gone."""


class Warden:
    """While open, a process of its own waits for this one's end, to see off what this one has started meanwhile."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # By its path and without the current folder on the way: whatever lies there must not be imported instead.
        older = [str(process.pid) for process in psutil.Process().children(recursive=True)]
        command = [sys.executable, "-P", __file__, *older]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def all_started(self) -> None:
        """Tell that nothing more will be started that needs to be seen off: it looks once more, and then only waits."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: the farm works without it
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    strangers = {os.getpid(), *map(int, sys.argv[1:])}
    driver = psutil.Process(os.getppid())
    started: set[psutil.Process] = set()
    watching, driver_lives = True, True
    while driver_lives:
        told, _, _ = select.select([sys.stdin], [], [], _LOOK_EVERY_S if watching else None)
        with suppress(psutil.NoSuchProcess):
            started |= {p for p in driver.children(recursive=True) if p.pid not in strangers}
        if told:
            driver_lives = bool(os.read(sys.stdin.fileno(), 1))
            watching = False
    _, left = psutil.wait_procs(started, timeout=_FAREWELL_S)
    for process in left:
        with suppress(psutil.Error):  # psutil knows by the time of creation if a number belongs to another by now
            process.kill()


if __name__ == "__main__":
    _main()
