"""Figures as text, one way for each unit."""

import math

ABSENT = "-"
UNBOUND = 100_000
"""Columns of an output that has no width of its own, such as a file: its lines are never folded."""


def microseconds(value: float | None) -> str:
    """Four significant digits, the unit left to the reader's column: `9.513`, `18.80`, `179.7`, `12041`."""
    if value is None or math.isnan(value):
        return ABSENT
    decimals = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:.{decimals}f}"


def duration(ms: float | None) -> str:
    """Milliseconds with their unit, seconds from 10 s on: `0.4 ms`, `450 ms`, `12.5 s`."""
    if ms is None:
        return ABSENT
    if ms >= 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def size(count: int | None) -> str:
    """Bytes with their unit: `0`, `512 B`, `48.2 KiB`, `1.0 GiB`."""
    if count is None:
        return ABSENT
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{count} B" if count else "0"
    return f"{value:.1f} {unit}"


def ratio(value: float | None) -> str:
    """A ratio of times: `1.12x`."""
    return ABSENT if value is None or math.isnan(value) else f"{value:.2f}x"


def relative_error(value: float | None) -> str:
    """A relative error: `1.66e-03`."""
    return ABSENT if value is None else f"{value:.2e}"


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 problem`, `24 problems`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """A text that came from a file or a library, with whatever a terminal could take for a command made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
