"""What running sweeps tell of themselves: one small file each, replaced as they go on. Not part of any table."""

from contextlib import suppress

from tunefarm.model.errors import StoreError
from tunefarm.store.folder import Folder

_FOLDER = "status"
_SUFFIX = ".json"


class Statuses:
    """The records, by the id of their sweep. What they hold is their writer's affair."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put(self, sweep: str, record: bytes) -> None:
        """Replace a sweep's record at once and whole. Raises StoreError."""
        self._folder.publish(f"{_FOLDER}/{sweep}{_SUFFIX}", record)

    def all(self) -> dict[str, bytes]:
        """Every record, oldest sweep first. Raises StoreError if the folder can't be listed."""
        records: dict[str, bytes] = {}
        for name in self._folder.names(_FOLDER, _SUFFIX):
            try:
                records[name.removesuffix(_SUFFIX)] = self._folder.read(f"{_FOLDER}/{name}")
            except OSError:  # a later sweep removed it meanwhile, or it is not for us to read
                continue
        return records

    def remove(self, sweep: str) -> None:
        """Forget a sweep. Nothing happens if it is forgotten already, or can't be."""
        with suppress(OSError, StoreError):
            self._folder.remove([f"{_FOLDER}/{sweep}{_SUFFIX}"])
