"""cuDNN's ways to say no, as one exception with one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tunefarm.model.errors import Declined

_LIMIT = 240
"""Characters of a reason that are kept: cuDNN's own text may hold kilobytes of JSON."""
_WARNING = re.compile(r"^Warning: (?P<code>\w+); Reason: (?P<reason>.*?)(?: at: .*)?$", re.MULTILINE)


@contextmanager
def declining(cudnn: Any) -> Iterator[None]:
    """Turn a refusal of cuDNN or its frontend into `Declined`; let mistakes of ours through.

    The backend raises RuntimeError for what it can't finalize, the frontend ValueError for what it can't express, and
    its python engines NotImplementedError and ImportError for what they don't serve.
    """
    try:
        yield
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError, ImportError) as refusal:
        reason = reason_of(str(refusal))
        raise Declined(reason or type(refusal).__name__) from None  # its traceback would keep the graph alive


def reason_of(message: str) -> str:
    """The reason in a message of cuDNN, on one line.

    A message about several engines holds a block for each, the cause first and its consequences after it. Engines for
    other architectures say nothing about the problem, unless there are no others.
    """
    causes = [m for block in message.split("\n\n") if (m := _WARNING.search(block))]
    telling = [m for m in causes if "ARCH_MISMATCH" not in m["code"] and "global index -1" not in m["reason"]]
    reasons = dict.fromkeys(m["reason"].strip() for m in telling or causes)
    text = "no engine takes it: " + "; ".join(reasons) if reasons else " ".join(message.split())
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1].rstrip() + "…"
