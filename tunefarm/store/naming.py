"""Which problem a person means."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from tunefarm.model.errors import UsageError

Named = tuple[str, str, str]
"""A problem's key, a name that a job gave it, and its label."""

_LISTED = 10
"""Matches that a message lists at most."""


def find_problem(text: str, known: Sequence[Named]) -> str:
    """The key of the one problem that has this key, name or label, or whose key begins so.

    Raises:
        UsageError: none or several have. Several are listed.
    """
    for fits in _ways_to_name(text):
        matches = {key: f"{name}  {label}" for key, name, label in known if fits(key, name, label)}
        if len(matches) == 1:
            return next(iter(matches))
        if matches:
            lines = [f"  {key}  {names}" for key, names in list(matches.items())[:_LISTED]]
            more = [f"  and {len(matches) - _LISTED} more"] if len(matches) > _LISTED else []
            raise UsageError("\n".join([f"{text!r} may be any of {len(matches)} problems; give a key:", *lines, *more]))
    close = get_close_matches(text, sorted({word for named in known for word in named}), n=3)
    guess = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(f"the store has no problem {text!r}{guess}")


def _ways_to_name(text: str) -> tuple[Callable[[str, str, str], bool], ...]:
    """From the surest to the loosest: an exact key is never ambiguous, a name may be."""
    return (
        lambda key, _name, _label: key == text,
        lambda _key, name, label: text in (name, label),
        lambda key, _name, _label: bool(text) and key.startswith(text),
    )
