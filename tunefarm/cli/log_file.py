"""The log of a sweep as a file of JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tunefarm.model.errors import UsageError

LOGGER = "tunefarm.sweep"


class JsonLines(logging.Formatter):
    """A record as one JSON object: `time`, `level`, `event`, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return json.dumps(line, ensure_ascii=True, default=str)


class _LogFile(logging.FileHandler):
    """A full disk ends no sweep."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Go on without this line."""


@contextmanager
def logged_to(path: Path | None) -> Iterator[None]:
    """Append the events of sweeps to a file meanwhile.

    Args:
        path: of the file; None for none.

    Raises:
        UsageError: it can't be opened.
    """
    if path is None:
        yield
        return
    try:
        handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"can't write the log {path}: {why}; name a file in a folder that you may write") from error
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()
