"""The command line: parses, calls one function of a lower room, prints. Results to stdout, all else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

FARM_EXTRA = frozenset({"cel", "click", "duckdb", "numpy", "psutil", "pyarrow", "pydantic", "ray", "rich", "yaml"})
"""Import names of what the extra `farm` brings."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Every error but a bug's is one message on stderr.

    Args:
        argv: the arguments; None for the process's own.
    """
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
