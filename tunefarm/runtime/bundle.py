"""The bundle: one signed, immutable file of plans, and its reader.

Layout: `MAGIC`; the envelope's length, 4 bytes, big-endian; the envelope, DSSE in JSON over the manifest; then the
packed plans end to end. There are no file names inside. Checks, in this order: lengths, the envelope's form, a
signature by a trusted key, the manifest's types, the places of all plans (no gap, no overlap, the last one ends the
file). A plan's bytes are read once, and nothing is done with them before their digest is known to be right.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from tunefarm.model.errors import BundleDamaged, BundleError, UsageError
from tunefarm.runtime.envelope import MAX_ENVELOPE, read_envelope
from tunefarm.runtime.manifest import Entry, Manifest
from tunefarm.runtime.trust import Trust, trusted_keys

MAGIC = b"TUNEFARM-BUNDLE\n"
LENGTH_BYTES = 4

_log = logging.getLogger(__name__)


class Bundle:
    """An opened bundle whose manifest was verified. Safe to use from many threads; the file stays open until `close`.

    A file that is replaced by a newer bundle does not change under an open one: this keeps what it opened.
    """

    def __init__(self, path: Path, manifest: Manifest, signed_by: str | None, descriptor: int, start: int) -> None:
        """For `open` alone, which does the checks."""
        self.path = path
        self.manifest = manifest
        self.signed_by = signed_by
        """Id of the trusted key that signed it; None for a bundle that was let in unsigned."""
        self._descriptor = descriptor
        self._start = start

    @classmethod
    def open(cls, path: str | os.PathLike[str], trust: Trust | None = None, *, allow_unsigned: bool = False) -> Self:
        """Verify a bundle's manifest. No plan is read yet.

        Args:
            path: of the file.
            trust: public keys or their files, one of which must have signed the bundle.
            allow_unsigned: let in a bundle that has no signature; without `trust` also one whose signature nobody
                here can check. Each use is logged as a warning.

        Raises:
            BundleRefused: no trusted key signed it, or its format is of another version.
            BundleDamaged: it is no bundle, or not as it was written.
            UsageError: there is no such file, or nobody to trust.
        """
        path = Path(path)
        keys = () if trust is None else trusted_keys(trust)
        if not keys and not allow_unsigned:
            raise UsageError(f"nobody to trust: give the public key that {path} must be signed by")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"can't open the bundle {path}: {error.strerror}") from None
        try:
            size = os.fstat(descriptor).st_size
            data = _envelope_bytes(descriptor, size)
            envelope = read_envelope(data)
            if allow_unsigned and not (keys and envelope.signatures):
                envelope.check_type()
                _log.warning("%s is used without a signature: whoever could write it chose what runs here", path)
                signed_by = None
            else:
                signed_by = envelope.verify(keys)
            manifest = Manifest.from_json(envelope.payload)
            start = len(MAGIC) + LENGTH_BYTES + len(data)
            _check_places(manifest.entries, size - start)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise BundleDamaged(f"can't read the bundle {path}: {error.strerror}") from None
            if isinstance(error, BundleError):
                raise type(error)(f"{path}: {error}") from None
            raise
        return cls(path, manifest, signed_by, descriptor, start)

    def plan_bytes(self, entry: Entry) -> bytes:
        """The bytes of an entry's plan, verified: whatever comes back is what was signed.

        Args:
            entry: one of this bundle's manifest.

        Raises:
            BundleDamaged: the file no longer holds them.
        """
        what = f"plan {entry.digest[:12]} of {entry.name} in {self.path}"
        packed = self._read(entry, what)
        if hashlib.sha256(packed).hexdigest() != entry.packed_digest:
            raise BundleDamaged(f"{what} is not what was signed; fetch the bundle anew")
        raw = _unpack(packed, entry.raw_bytes)
        if raw is None or hashlib.sha256(raw).hexdigest() != entry.digest:
            raise BundleDamaged(f"{what} does not unpack to what its entry says; ship the bundle anew")
        return raw

    def check_plans(self) -> None:
        """Read and verify every plan once. Raises BundleDamaged, as `plan_bytes` does."""
        for entry in {entry.digest: entry for entry in self.manifest.entries}.values():
            self.plan_bytes(entry)

    def close(self) -> None:
        """Let go of the file. Plans that were read stay valid."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read(self, entry: Entry, what: str) -> bytes:
        if self._descriptor < 0:
            raise UsageError(f"{self.path} was closed")
        try:
            packed = os.pread(self._descriptor, entry.packed_bytes, self._start + entry.offset)
        except OSError as error:
            raise BundleDamaged(f"can't read {what}: {error.strerror}") from None
        if len(packed) != entry.packed_bytes:
            raise BundleDamaged(f"{what} is cut off; fetch the bundle anew")
        return packed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _envelope_bytes(descriptor: int, size: int) -> bytes:
    """The envelope, its length checked against the file's and the limit before it is read. Raises BundleDamaged."""
    begin = len(MAGIC) + LENGTH_BYTES
    head = os.pread(descriptor, begin, 0)
    if not head.startswith(MAGIC):
        raise BundleDamaged("this is no bundle of tunefarm: it begins otherwise")
    if len(head) < begin:
        raise BundleDamaged("the bundle is cut off in its first bytes; fetch it anew")
    length = int.from_bytes(head[len(MAGIC) :], "big")
    if length > MAX_ENVELOPE:
        raise BundleDamaged(f"the bundle's envelope has {length} bytes, over the limit of {MAX_ENVELOPE}")
    data = os.pread(descriptor, length, begin) if begin + length <= size else b""
    if len(data) < length:
        raise BundleDamaged("the bundle is cut off in its envelope; fetch it anew")
    return data


def _check_places(entries: Iterable[Entry], size: int) -> None:
    """See that the plans lie end to end and fill the file; entries of one plan share its place.

    Raises:
        BundleDamaged: they don't.
    """
    places = {
        (entry.offset, entry.packed_bytes, entry.raw_bytes, entry.packed_digest, entry.digest) for entry in entries
    }
    if len({digest for *_, digest in places}) != len(places):
        raise BundleDamaged("the bundle's entries give one plan two places")
    end = 0
    for offset, packed_bytes, *_ in sorted(places):
        if offset != end:
            raise BundleDamaged(f"the bundle's plans leave a gap or overlap at byte {min(offset, end)}")
        end = offset + packed_bytes
    if end != size:
        raise BundleDamaged(f"the bundle should have {end} bytes of plans and has {size}; fetch it anew")


def _unpack(packed: bytes, size: int) -> bytes | None:
    """What zlib unpacks to, if that is exactly `size` bytes and nothing follows. Unpacks a byte too much at most."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(packed, size + 1)
    except zlib.error:
        return None
    whole = unpacker.eof and not unpacker.unused_data and not unpacker.unconsumed_tail
    return raw if whole and len(raw) == size else None
