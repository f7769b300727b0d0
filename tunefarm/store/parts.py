"""Parts: immutable files that appear whole or not at all, each with a proof of what it should hold."""

import hashlib
import json
import re
import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tunefarm.model.errors import StoreError
from tunefarm.model.keys import content_key
from tunefarm.store.folder import Folder, Stamp, said
from tunefarm.store.plain_json import load_object

SUFFIX = ".parquet"
_TIME = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, order=True)
class Damage:
    """One file of a store that can't be trusted, and was left out of every result."""

    path: str
    what: str
    name: str = field(default="", compare=False)
    """Its name in the store's folder."""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class Part:
    """A part as its proof describes it."""

    name: str
    size: int
    sha256: str
    rows: int
    replaces: frozenset[str] = frozenset()
    """Parts that writers published, all of whose rows it holds in their stead, less those that were pruned."""
    generation: int = 0
    """0 as a writer published it; one more than those that it was made of."""

    @property
    def covers(self) -> frozenset[str]:
        """Parts that writers published, and whose rows are in it."""
        return self.replaces or frozenset((self.name,))

    @property
    def made_at(self) -> datetime:
        """When its maker named it; now, if its name tells no time."""
        try:
            return datetime.strptime(self.name.partition("-")[0], _TIME).replace(tzinfo=UTC)
        except ValueError:
            return datetime.now(UTC)

    @property
    def proof(self) -> bytes:
        """The content of its proof."""
        fields = {"sha256": self.sha256, "size": self.size, "rows": self.rows}
        if self.replaces:
            fields |= {"replaces": sorted(self.replaces), "generation": self.generation}
            fields["seal"] = _seal(fields)  # a name that is damaged would bring replaced rows back
        return json.dumps(fields).encode()


@dataclass(frozen=True)
class Piece:
    """A part that is to be read, and what of it."""

    part: Part
    address: str
    without: frozenset[str] = frozenset()
    """Of the parts that it covers, those whose rows another piece holds too: two compactions ran side by side."""


def _seal(fields: Mapping[str, Any]) -> str:
    return content_key("proof", fields)


def new_part_name() -> str:
    """A name that no other writer takes: UTC time (so names sort by it), host, 64 random bits."""
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:32] or "host"
    return f"{datetime.now(UTC):{_TIME}}-{host}-{secrets.token_hex(8)}"


def new_part(name: str, data: bytes, rows: int, replaces: Collection[str] = (), generation: int = 0) -> Part:
    """The part of a content, under a `new_part_name`."""
    return Part(name, len(data), hashlib.sha256(data).hexdigest(), rows, frozenset(replaces), generation)


def choose(parts: Iterable[Part]) -> list[tuple[Part, frozenset[str]]]:
    """Parts that hold every row once, and what is to be left out of each; in the order of their names.

    Whatever compactions ran, were killed, or ran side by side: a part that covers more goes first, then the one that
    was made last, and what is all covered already is not read.
    """
    taken: set[str] = set()
    chosen = []
    for part in sorted(parts, key=lambda p: (-len(p.covers), -p.generation, p.name)):
        shared = part.covers & taken
        if len(shared) < len(part.covers):
            chosen.append((part, shared))
            taken |= part.covers
    return sorted(chosen, key=lambda found: found[0].name)


class Parts:
    """The parts of one table, in `TABLE/v1`; the proof of each (size, SHA-256, rows) in `meta/TABLE/v1`.

    A proof is published before its part: a proof without a part is the trace of a writer that died, and harmless; a
    part without a proof was not put there by a writer, or its proof was lost, and can't be trusted. A proof may say
    that its part replaces others: they are not read from the moment that the part appears, and are removed later.
    """

    def __init__(self, folder: Folder, table: str, objection: Callable[[str], str | None]) -> None:
        """`objection` says what the table itself has against a part whose digest is right, by its address, or None."""
        self._folder = folder
        self._table = f"{table}/v1"
        self._objection = objection
        self._proofs: dict[str, Part] = {}
        self._proven: dict[str, Stamp] = {}
        self._damage: dict[str, Damage] = {}

    def publish(self, part: Part, data: bytes) -> None:
        """Add a part. Raises StoreError."""
        self._folder.publish(self._proof_name(part.name), part.proof)
        self._folder.publish(self._part_name(part.name), data)

    def sound(self) -> tuple[Piece, ...]:
        """What is to be read to have every row once, oldest first. A part is read through once, then trusted.

        It is read again when its size, time or number has changed.
        """
        stamps = self._listed()
        parts = dict(self._described(stamps))
        while True:
            chosen = choose(parts.values())
            bad = [part.name for part, _ in chosen if not self._holds(part, stamps[part.name])]
            if not bad:
                return tuple(Piece(part, self._address(part.name), without) for part, without in chosen)
            for name in bad:
                del parts[name]

    def superseded(self) -> tuple[Part, ...]:
        """Parts that are there, and not read, since sound ones hold all that they cover."""
        read = {piece.part.name for piece in self.sound()}
        return tuple(part for name, part in self._described(self._listed()) if name not in read | self._damage.keys())

    def audit(self) -> tuple[Damage, ...]:
        """Read every part through, also those that are not read any more; returns those that are damaged."""
        self._proven = {}
        self._proofs = {}
        stamps = self._listed()
        for name, part in self._described(stamps):
            self._holds(part, stamps[name])
        return self.damage

    def recheck(self) -> bool:
        """Forget which parts were proven and look again; whether the sound ones are others now."""
        before = set(self._proven)
        self._proven = {}
        self._proofs = {}
        self.sound()
        return before != set(self._proven)

    def remove(self, parts: Sequence[Part]) -> None:
        """Remove parts, and when that is sure their proofs: a part without one would count as damaged.

        Raises:
            StoreError: they can't be removed.
        """
        for name_of in (self._part_name, self._proof_name):
            try:
                self._folder.remove([name_of(part.name) for part in parts])
            except OSError as error:
                place = self._folder.place(self._table)
                raise StoreError(f"can't remove files of {place}: {said(error)}; make them removable") from error

    def content(self, part: Part) -> bytes:
        """All of a part's bytes. Raises OSError."""
        return self._folder.read(self._part_name(part.name))

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What the latest look set aside."""
        return tuple(self._damage.values())

    def _listed(self) -> dict[str, Stamp]:
        """Every part that is there, by name, oldest first. What was known of others is forgotten."""
        found = self._folder.stamps(self._table, SUFFIX)
        stamps = {name.removesuffix(SUFFIX): found[name] for name in sorted(found)}
        self._damage = {}
        self._proven = {name: stamp for name, stamp in self._proven.items() if stamps.get(name) == stamp}
        self._proofs = {name: part for name, part in self._proofs.items() if name in self._proven}
        return stamps

    def _described(self, stamps: Mapping[str, Stamp]) -> Iterator[tuple[str, Part]]:
        """Each part that has a proof."""
        for name in stamps:
            if name not in self._proofs:
                found = self._proof(name)
                if isinstance(found, str):
                    self._blame(name, found)
                    continue
                self._proofs[name] = found
            yield name, self._proofs[name]

    def _holds(self, part: Part, stamp: Stamp) -> bool:
        """Whether a part holds what its proof says."""
        if self._proven.get(part.name) == stamp:
            return True
        what = self._fault(part, stamp) or self._objection(self._address(part.name))
        if what is not None:
            self._blame(part.name, what)
            return False
        self._proven[part.name] = stamp
        return True

    def _fault(self, part: Part, stamp: Stamp) -> str | None:
        if stamp.size != part.size:
            return f"it holds {stamp.size} bytes and was published with {part.size}"
        try:
            if self._folder.digest(self._part_name(part.name)) != part.sha256:
                return "its content is not what was published (SHA-256 differs)"
        except OSError as error:
            return f"it can't be read ({said(error)})"
        return None

    def _proof(self, name: str) -> Part | str:
        """What a part should hold, or why that is not known."""
        proof = self._proof_name(name)
        try:
            fields = load_object(self._folder.read(proof))
            replaces = frozenset(fields.get("replaces", ()))
            if fields.keys() - {"sha256", "size", "rows"} and fields.pop("seal", None) != _seal(fields):
                return f"unproven: {proof} is not as it was published"
            generation = int(fields.get("generation", 0))
            return Part(name, fields["size"], fields["sha256"], fields.get("rows", 0), replaces, generation)
        except FileNotFoundError:
            return f"unproven: it has no {proof}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"unproven: {proof} can't be read ({error})"

    def _blame(self, name: str, what: str) -> None:
        file = self._part_name(name)
        if self._folder.has(file):  # else it went away under the reader's eyes
            self._damage[name] = Damage(self._folder.place(file), what, file)

    def _part_name(self, name: str) -> str:
        return f"{self._table}/{name}{SUFFIX}"

    def _proof_name(self, name: str) -> str:
        return f"meta/{self._table}/{name}.json"

    def _address(self, name: str) -> str:
        return self._folder.address(self._part_name(name))
