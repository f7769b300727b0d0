"""Signals that end a sweep early, leaving a store that resumes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

GRACE_S = {signal.SIGINT: 3.0, signal.SIGTERM: 1.0}
"""How long measurements under way may finish. `ray job stop` and KubeRay kill about 3 s after SIGTERM."""


class InterruptedStartError(Exception):
    """A signal came before there was anything to finish."""


class Interrupt:
    """While open, SIGINT and SIGTERM ask the sweep to stop; a second one ends it at once by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that asked, if one did."""
        self._asked_at = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._ask) for number in GRACE_S}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def may_wait(self) -> bool:
        """Whether there is time left for what is under way."""
        return self.signal is not None and time.monotonic() - self._asked_at < GRACE_S[signal.Signals(self.signal)]

    def check(self) -> None:
        """Raise InterruptedStartError if a signal has asked."""
        if self.signal is not None:
            raise InterruptedStartError

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal, self._asked_at = number, time.monotonic()


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Let nobody replace the handlers of SIGINT and SIGTERM.

    `ray.init` puts one of its own in place of SIGTERM's, which ends the process from wherever it is, with exit code 15.
    """
    set_handler = signal.signal

    def keep(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number in GRACE_S else set_handler(number, handler)

    signal.signal = keep  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = set_handler
