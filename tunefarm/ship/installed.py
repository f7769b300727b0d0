"""The folder that a machine's inference processes read bundles from, and how a new one gets there.

Layout: `current`, a link to the bundle in use; `bundles/`, that one and the one before it; `state.json`, what was seen
of the channel. Nothing is activated before everything about it was checked, and the state is written after the checks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tunefarm.model.errors import BundleDamaged, BundleRefused, UsageError
from tunefarm.model.keys import canonical_json
from tunefarm.model.places import public
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.manifest import MAX_WITHDRAWN, Manifest
from tunefarm.runtime.strict_json import Malformed, integer, items, optional, parse, read_fields, text
from tunefarm.runtime.trust import Trust, trusted_keys
from tunefarm.ship.files import activate, draft_of, point, publish, write_draft
from tunefarm.ship.transport import chunks_of

CURRENT = "current"
_STATE = "state.json"
_BUNDLES = "bundles"
_NAME = re.compile(r"[0-9]+-[0-9a-f]{16}\.bundle")


@dataclass(frozen=True)
class State:
    """What a folder knows of its channel."""

    channel: str
    counter: int
    """The highest that was ever active here."""
    current: str
    """File name of the bundle in use."""
    previous: str | None
    """File name of the one before it, if it can be gone back to."""
    withdrawn: tuple[str, ...]
    """Every digest that a bundle of the channel withdrew."""


@dataclass(frozen=True)
class Pulled:
    """What a pull or a rollback came to."""

    manifest: Manifest
    path: Path
    """The link that inference processes open."""
    is_new: bool
    """False if it was the bundle in use already."""


class Installed:
    """A folder of pulled bundles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def current(self) -> Path:
        """The link to the bundle in use: what a plan book is to open."""
        return self.folder / CURRENT

    def pull(self, place: str, trust: Trust | None, now: datetime, *, allow_unsigned: bool = False) -> Pulled:
        """Fetch a bundle, check all of it, and make it the current one.

        Args:
            place: a local path or a URI.
            trust: public keys, one of which must have signed it.
            now: UTC.
            allow_unsigned: as for `Bundle.open`.

        Raises:
            BundleRefused: not signed by a trusted key, expired, of another channel, not newer than what was here, or
                it holds a plan that was withdrawn. The current bundle stays.
            BundleDamaged: it is not whole; or the folder's own state is not.
            UsageError: it can't be fetched, the folder can't be written, or there is nobody to trust.
        """
        keys = None if trust is None else trusted_keys(trust)  # before anything is fetched in vain
        with self._locked():
            state = self._state()
            with draft_of(self.folder / _BUNDLES / "new") as draft:
                digest = _fetch(place, draft)
                try:
                    with Bundle.open(draft, keys, allow_unsigned=allow_unsigned) as bundle:
                        bundle.check_plans()
                        manifest = bundle.manifest
                except (BundleDamaged, BundleRefused, UsageError) as error:
                    raise type(error)(str(error).replace(str(draft), public(place))) from None
                name = f"{manifest.counter}-{digest[:16]}.bundle"
                _check_successor(manifest, name, state, now)
                is_new = state is None or state.current != name
                if is_new:
                    activate(draft, self.folder / _BUNDLES / name)
            self._switch(_succeed(state, manifest, name))
            return Pulled(manifest, self.current, is_new)

    def roll_back(self, trust: Trust | None, *, allow_unsigned: bool = False) -> Pulled:
        """Make the bundle before the current one the current one again. A newer one is needed to go forward.

        Raises:
            BundleRefused: it holds a plan that was withdrawn since, or is not signed by a trusted key.
            BundleDamaged: it is not whole.
            UsageError: there is none.
        """
        with self._locked():
            state = self._state()
            if state is None or state.previous is None:
                raise UsageError(f"{self.folder} has no previous bundle to go back to")
            path = self.folder / _BUNDLES / state.previous
            with Bundle.open(path, trust, allow_unsigned=allow_unsigned) as bundle:
                bundle.check_plans()
                _check_withdrawn(bundle.manifest, state)
                manifest = bundle.manifest
            self._switch(replace(state, current=state.previous, previous=None))
            return Pulled(manifest, self.current, is_new=True)

    def _switch(self, state: State) -> None:
        """Write the state, then let the link follow it; a pull that was cut between is mended by the next one."""
        publish(self.folder / _STATE, [canonical_json({"version": 1, **asdict(state)}).encode()])
        point(self.current, f"{_BUNDLES}/{state.current}")
        for path in (self.folder / _BUNDLES).iterdir():
            if path.name not in (state.current, state.previous):
                with suppress(OSError):  # a process that has it open keeps it
                    path.unlink()

    def _state(self) -> State | None:
        path = self.folder / _STATE
        try:
            held = read_fields(parse(path.read_bytes()), _FIELDS)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"can't read {path}: {error.strerror}") from None
        except Malformed as fault:
            raise BundleDamaged(
                f"{path} is damaged ({fault}), and with it what protects from old bundles;"
                f" remove {self.folder} and pull anew"
            ) from None
        del held["version"]
        return State(**held)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other pulls out. Readers need no lock."""
        try:
            (self.folder / _BUNDLES).mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise UsageError(f"can't write {self.folder}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _fetch(place: str, draft: Path) -> str:
    """Copy a bundle into a draft. Returns its SHA-256. Raises UsageError, OSError."""
    digest = hashlib.sha256()

    def tapped() -> Iterator[bytes]:
        for chunk in chunks_of(place):
            digest.update(chunk)
            yield chunk

    write_draft(draft, tapped())
    return digest.hexdigest()


def _check_successor(manifest: Manifest, name: str, state: State | None, now: datetime) -> None:
    """Raises BundleRefused if the bundle may not follow what was here."""
    if manifest.is_expired(now):
        raise BundleRefused(f"the bundle expired at {manifest.expires:%Y-%m-%d %H:%M} UTC; ship a new one")
    if state is None:
        return
    if manifest.channel != state.channel:
        raise BundleRefused(f"the bundle is of channel {manifest.channel}; this folder follows {state.channel}")
    if manifest.counter <= state.counter and name != state.current:
        raise BundleRefused(
            f"the bundle has counter {manifest.counter}, and {state.counter} was here already; ship a newer one"
        )
    _check_withdrawn(manifest, state)


def _check_withdrawn(manifest: Manifest, state: State) -> None:
    withdrawn = set(state.withdrawn)
    for entry in manifest.entries:
        if entry.digest in withdrawn:
            raise BundleRefused(
                f"bundle {manifest.counter} holds plan {entry.digest[:12]} of {entry.name}, which was withdrawn;"
                " ship one without it"
            )


def _succeed(state: State | None, manifest: Manifest, name: str) -> State:
    if state is not None and state.current == name:
        return state
    return State(
        channel=manifest.channel,
        counter=manifest.counter,
        current=name,
        previous=state.current if state else None,
        withdrawn=tuple(sorted({*(state.withdrawn if state else ()), *manifest.withdrawn})),
    )


def _bundle_name(value: Any) -> str:
    if not _NAME.fullmatch(text(value)):
        raise Malformed("must be the name of a pulled bundle")
    return str(value)


_FIELDS: dict[str, Any] = {
    "version": partial(integer, low=1, high=1),
    "channel": text,
    "counter": partial(integer, low=1),
    "current": _bundle_name,
    "previous": partial(optional, read=_bundle_name),
    "withdrawn": partial(items, read=text, limit=2 * MAX_WITHDRAWN),
}
