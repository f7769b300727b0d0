"""Every error that tunefarm raises on purpose.

The tree::

    TunefarmError               exit 1
    ├── JobError                exit 2   a job file with mistakes: all of them, each with its place and mend
    ├── InvalidProblem          exit 2   a problem whose fields contradict each other
    ├── UsageError              exit 2   a command asked for something that can't be done
    ├── StoreError              exit 4   a store that can't be read or written
    │   └── StoreUnreachable    exit 4   it may be back in a while: a network, a server, a mount
    ├── BundleError                      a bundle that is not to be used; one of
    │   ├── BundleDamaged       exit 4   it is no bundle, or not as it was written
    │   └── BundleRefused       exit 5   it may be whole, and is not to be trusted here: signature, key, age, expiry
    ├── NoSuitableGpu           exit 6   a GPU was asked for and none can serve
    ├── FarmError               exit 1   the farm itself failed: a node, an actor, the executor
    └── Declined                         an engine refuses a problem or a candidate. Becomes a row, never ends a sweep

A candidate's failure is a value (`Failure` in `trial.py`), not an exception.
"""

from dataclasses import dataclass


class TunefarmError(Exception):
    """Base of all: its text is one clear message for a person, with what, where, and how to mend it."""

    exit_code = 1


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake in a file."""

    path: str
    line: int
    column: int
    key: str
    """Dotted place in the document, such as `ops[0].head_dim`; empty for the document as a whole."""
    message: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class JobError(TunefarmError):
    """A job file that can't be used. Holds every mistake found, in file order."""

    exit_code = 2

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(mistakes)
        count = len(self.mistakes)
        head = f"{count} mistakes" if count != 1 else "1 mistake"
        super().__init__("\n".join([f"{head} in the job file", *(f"  {m}" for m in self.mistakes)]))


class InvalidProblem(TunefarmError):
    """Fields of a problem that can't be, alone or together."""

    exit_code = 2

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.field, self.message)


class UsageError(TunefarmError):
    """A request that can't be carried out as asked."""

    exit_code = 2


class StoreError(TunefarmError):
    """A store that can't be read or written."""

    exit_code = 4


class StoreUnreachable(StoreError):
    """A store that did not answer, and may again in a while: whoever has something to write may wait for it."""


class BundleError(TunefarmError):
    """A bundle of plans that is not to be used. Always one of its two kinds."""


class BundleDamaged(BundleError):
    """Bytes that are no bundle, or are not as they were written."""

    exit_code = 4


class BundleRefused(BundleError):
    """A bundle that is not to be trusted here: no signature by a trusted key, too old, expired, or withdrawn."""

    exit_code = 5


class NoSuitableGpu(TunefarmError):
    """A GPU was asked for, and no worker of the farm has one that serves."""

    exit_code = 6


class FarmError(TunefarmError):
    """The farm itself failed: a node, an actor, the executor. Never a candidate's fault."""


class Declined(TunefarmError):
    """An engine refuses a problem or a candidate; the text is its reason, one line."""
