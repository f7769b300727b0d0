"""What an inference process imports: signed bundles of plans, and what runs them. Needs torch, cudnn, cryptography."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefarm.runtime.book import PlanBook
    from tunefarm.runtime.bundle import Bundle
    from tunefarm.runtime.explanation import Explanation
    from tunefarm.runtime.ledger import Cause, Counters, Step
    from tunefarm.runtime.lookup import Hit, Miss
    from tunefarm.runtime.modules import Coverage, apply

__all__ = ["Bundle", "Cause", "Counters", "Coverage", "Explanation", "Hit", "Miss", "PlanBook", "Step", "apply"]

_HOMES = {
    "Bundle": "bundle",
    "Cause": "ledger",
    "Counters": "ledger",
    "Coverage": "modules",
    "Explanation": "explanation",
    "Hit": "lookup",
    "Miss": "lookup",
    "PlanBook": "book",
    "Step": "ledger",
    "apply": "modules",
}


def __getattr__(name: str) -> Any:
    """Import a public name where it is first asked for: whoever checks a bundle needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
