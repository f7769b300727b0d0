"""The text of a file from anywhere: bounded, and nothing in it that YAML forbids."""

import stat
from pathlib import Path
from typing import Final

from yaml.reader import Reader

from tunefarm.jobfile.wording import did_you_mean

MAX_BYTES: Final = 2**20


class TextError(Exception):
    """A file that can't be read as text; the message says why and how to mend it. Line and column count from 1."""

    def __init__(self, message: str, before: str = "") -> None:
        self.line = before.count("\n") + 1
        self.column = len(before) - before.rfind("\n")
        super().__init__(message)


class Unopened(TextError):
    """A file of which nothing was read, so that no place in it is to be told."""


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        TextError: it can't be read (Unopened), is too large, or is no text that YAML allows.
    """
    raw = _read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8"
        raise TextError(message, raw[: error.start].decode("utf-8-sig", errors="replace")) from None
    if odd := Reader.NON_PRINTABLE.search(text):
        message = f"the character U+{ord(odd.group()):04X} is not allowed in YAML; remove it"
        raise TextError(message, text[: odd.start()])
    return text


def _read_bytes(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block, a device never end
            what = "a folder" if path.is_dir() else "no regular file"
            raise Unopened(f"this is {what}; give the path of a YAML file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Unopened(f"no such file{similar_file(path)}") from None
    except OSError as error:
        raise Unopened(f"can't be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the path
        raise Unopened(f"can't be read: {error}") from None
    if len(raw) > MAX_BYTES:
        raise TextError(f"over {MAX_BYTES:,} bytes, the most that a job file may have; split the job")
    return raw


def similar_file(path: Path) -> str:
    """`; did you mean ...?`, of the YAML files beside it; empty where none is close."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"}]
    except OSError:
        return ""
    return did_you_mean(path.name, names)
