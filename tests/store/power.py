"""A model of what a disk may hold after the power went: names and data that were not synced may be there, or not.

The steps are those that the store's own code takes, recorded as it takes them. After a loss at any step a file's data
that was not synced may be whole, a prefix, or zeros; a name that was made, moved or removed without its folder being
synced may be as before or as after.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Inode = int
"""Number of a file, whatever it is called."""


@dataclass
class Disk:
    """Folders and files as a program sees them, and as the platter has them."""

    root: Path
    steps: list[tuple[str, ...]] = field(default_factory=list)
    written: dict[Inode, bytes] = field(default_factory=dict)

    def name(self, path: Any) -> str:
        return str(Path(path).absolute().relative_to(self.root))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what the code within does to files under the root."""
        real = {name: getattr(os, name) for name in ("fsync", "rename", "unlink", "mkdir")}

        def fsync(handle: int) -> None:
            real["fsync"](handle)
            path = Path(f"/proc/self/fd/{handle}").resolve()
            if path.is_relative_to(self.root):
                name = self.name(path)
                if path.is_dir():
                    self.steps.append(("sync names", name))
                else:
                    data = path.read_bytes()
                    self.steps += [("written", name, data.hex()), ("sync data", name)]

        def rename(old: Any, new: Any, **more: Any) -> None:
            real["rename"](old, new, **more)
            self.steps.append(("rename", self.name(old), self.name(new)))

        def unlink(path: Any, **more: Any) -> None:
            real["unlink"](path, **more)
            self.steps.append(("unlink", self.name(path)))

        def mkdir(path: Any, *args: Any, **more: Any) -> None:
            real["mkdir"](path, *args, **more)
            self.steps.append(("mkdir", self.name(path)))

        fakes: dict[str, Callable[..., None]] = {"fsync": fsync, "rename": rename, "unlink": unlink, "mkdir": mkdir}
        with pytest.MonkeyPatch.context() as patch:
            for name, fake in fakes.items():
                patch.setattr(os, name, fake)
            yield

    def lost_at(self, step: int, dice: random.Random, into: Path) -> None:
        """Make a folder as the disk may be when the power goes after so many steps."""
        state = self._after(step)
        state.lose_power(dice)
        state.write(into)

    def killed_at(self, step: int, into: Path) -> None:
        """Make a folder as others see the disk when only the process dies after so many steps."""
        self._after(step).write(into)

    def _after(self, step: int) -> "_State":
        state = _State()
        for kind, *words in self.steps[:step]:
            getattr(state, kind.replace(" ", "_"))(*words)
        return state


class _State:
    """What a program sees (`seen`), and what the platter has for sure (`kept`): names with a file's number each."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._synced: set[Inode] = set()
        self._seen: dict[str, Inode | None] = {".": None}  # None: a folder
        self._kept = dict(self._seen)
        self._pending: list[tuple[str, Changes]] = []

    def mkdir(self, name: str) -> None:
        self._change(_folder(name), [(name, True, None)])

    def written(self, name: str, data: str) -> None:
        self._data.append(bytes.fromhex(data))
        self._change(_folder(name), [(name, True, len(self._data) - 1)])

    def sync_data(self, name: str) -> None:
        number = self._seen[name]
        assert number is not None
        self._synced.add(number)

    def rename(self, old: str, new: str) -> None:
        self._change(_folder(new), [(old, False, None), (new, True, self._seen[old])])

    def unlink(self, name: str) -> None:
        if name in self._seen:
            self._change(_folder(name), [(name, False, None)])

    def sync_names(self, folder: str) -> None:
        for _, changes in (p for p in self._pending if p[0] == folder):
            _apply(changes, self._kept)
        self._pending = [p for p in self._pending if p[0] != folder]

    def lose_power(self, dice: random.Random) -> None:
        for _, changes in self._pending:
            if dice.random() < 0.5:
                _apply(changes, self._kept)
        self._seen = self._kept
        for number, data in enumerate(self._data):
            if number not in self._synced:
                self._data[number] = dice.choice([data, data[: dice.randrange(len(data) + 1)], bytes(len(data))])

    def write(self, into: Path) -> None:
        """Make files and folders of what programs see."""
        into.mkdir()
        for name in sorted(self._seen):
            if not all(str(above) in self._seen for above in Path(name).parents):
                continue  # its folder is not there
            number = self._seen[name]
            if number is None:
                (into / name).mkdir(exist_ok=True)
            else:
                (into / name).write_bytes(self._data[number])

    def _change(self, folder: str, changes: "Changes") -> None:
        _apply(changes, self._seen)
        self._pending.append((folder, changes))


Changes = list[tuple[str, bool, Inode | None]]
"""Names that come or go together."""


def _apply(changes: Changes, names: dict[str, Inode | None]) -> None:
    for name, there, number in changes:
        if there:
            names[name] = number
        else:
            names.pop(name, None)


def _folder(name: str) -> str:
    return str(Path(name).parent)
