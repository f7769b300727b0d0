"""Targets in the store: one small JSON file each, written once."""

import pyarrow as pa

from tunefarm.model.keys import canonical_json
from tunefarm.model.target import Target
from tunefarm.store.folder import Folder, said
from tunefarm.store.parts import Damage
from tunefarm.store.plain_json import load_object
from tunefarm.store.rows import STRANGE
from tunefarm.store.schema import TARGETS

_FOLDER = "meta/targets"


class Targets:
    """Every target that trials were made on."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._damage: tuple[Damage, ...] = ()

    def put(self, target: Target) -> None:
        """Keep a target; the first of equal keys stays. Raises StoreError."""
        if target.key not in self.all():
            self._folder.publish(f"{_FOLDER}/{target.key}.json", canonical_json(target.to_dict()).encode())

    def all(self) -> dict[str, Target]:
        """Targets by key. Raises StoreError."""
        targets, damage = {}, []
        for name in self._folder.names(_FOLDER, ".json"):
            key = name.removesuffix(".json")
            found = self._read(key)
            if isinstance(found, Target):
                targets[key] = found
            else:
                damage.append(found)
        self._damage = tuple(damage)
        return targets

    def table(self) -> pa.Table:
        """Targets as rows of `schema.TARGETS`. Raises StoreError."""
        rows = [{"target": key, "label": t.label, **t.to_dict()} for key, t in self.all().items()]
        return pa.Table.from_pylist(rows, schema=TARGETS)

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Files that the latest reading left out."""
        return self._damage

    def _read(self, key: str) -> Target | Damage:
        name = f"{_FOLDER}/{key}.json"
        path = self._folder.place(name)
        try:
            fields = load_object(self._folder.read(name))
            for value in fields.values():
                value.encode()  # all is text, and such as a table can hold
            target = Target.from_dict(fields)
            found = target.key
        except OSError as error:
            return Damage(path, f"it can't be read ({said(error)})", name)
        except STRANGE as error:
            return Damage(path, f"it describes no target ({error})", name)
        return target if found == key else Damage(path, f"it describes target {found}", name)
