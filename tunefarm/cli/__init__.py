"""The command line: parses, calls one function of a lower room, prints. Results to stdout, all else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

FARM_EXTRA = frozenset({"cel", "click", "duckdb", "numpy", "psutil", "pyarrow", "pydantic", "ray", "rich", "yaml"})
"""Import names of what the extra `farm` brings."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Every error but a bug's is one message on stderr.

    Args:
        argv: the arguments; None for the process's own.
    """
    _open_closed_streams()
    try:
        from tunefarm.cli.app import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in FARM_EXTRA:
            raise
        print(
            f"tunefarm: {package} is not installed; the command line needs the extra `farm`:"
            " pip install 'tunefarm[farm]'",
            file=sys.stderr,
        )
        return 2


def _open_closed_streams() -> None:
    """Give every standard stream that the caller closed (`2>&-`) the null device.

    Else it is None, and the next file that is opened takes its descriptor: a library's message would end up in there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the one that was closed
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace"))
