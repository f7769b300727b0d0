"""Sees to it that no helper process of a farm outlives its driver, however that ends.

Workers end with their driver by themselves, but Ray's helpers wait a minute for a head that is gone. The warden is a
process of its own: it is told of the helpers, waits for the driver's end, and kills those that are left. They can't be
found afterwards: orphans have another parent, and Ray's processes overwrite their names and environments.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

import psutil

_FAREWELL_S = 1.0
"""How long processes may end by themselves once the driver is gone."""


class Warden:
    """While open, a process of its own waits for this one's end. `note` tells it whom to see off."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._older: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._older = set(psutil.Process().children(recursive=True))  # the warden itself among them
        return self

    def note(self) -> None:
        """Tell of every process that came from this one since the warden was opened."""
        assert self._process is not None
        assert self._process.stdin is not None
        started = set(psutil.Process().children(recursive=True)) - self._older
        self._process.stdin.write(json.dumps([(p.pid, p.create_time()) for p in started]) + "\n")
        self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    noted: list[psutil.Process] = []
    for line in sys.stdin:  # ends with the driver
        for pid, created in json.loads(line):
            try:
                process = psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue
            if process.create_time() == created:
                noted.append(process)
    _, left = psutil.wait_procs(noted, timeout=_FAREWELL_S)
    for process in left:
        try:
            process.kill()  # psutil knows by the time of creation whether a number was given to another process
        except psutil.Error:
            continue


if __name__ == "__main__":
    _main()
