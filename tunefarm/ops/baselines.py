"""torch.compile as a baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Args = ParamSpec("Args")
Result = TypeVar("Result")


def compiled(function: Callable[Args, Result]) -> Callable[Args, Result]:
    """The function under torch.compile, compiled at its first call for the shapes that it then meets.

    It compiles as a whole or raises: a baseline that is partly eager would carry the wrong name.
    """
    kept: list[Callable[..., Any]] = []

    def run(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        if not kept:
            import torch

            # A code object is compiled for 8 sets of shapes and then never again. A worker meets more problems than
            # that with the same code, so each starts afresh.
            torch.compiler.reset()
            kept.append(torch.compile(function, dynamic=False, fullgraph=True))
        result: Result = kept[0](*args, **kwargs)
        return result

    return run
