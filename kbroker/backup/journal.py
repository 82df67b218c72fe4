"""The journal of a backup that is not finished: which closed segments were copied, and from where.

    ["logs/orders-0/00000000000000000000.log", {"size_bytes": 880, "xxh3": "...", "source": [..]}]

A line is appended when its file is on the disk. A crash may tear the last line, which is left out
then, as are lines that are no such thing: the file is copied again. The journal is locked by the
run that writes it, and a directory that has something else than a journal or nothing is refused:
a backup is never made over another one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from kbroker.backup.files import FILE_MODE, make_directory
from kbroker.backup.manifest import (
    JOURNAL_FILE,
    MANIFEST_FILE,
    SavedFile,
    file_fields,
    read_file_fields,
)
from kbroker.errors import UserError

JOURNAL_BYTES_MAX: Final = 256 << 20
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Journal:
    """Locked from `begin` until the end of the `with`."""

    def __init__(self, target: Path, handle: int) -> None:
        self._target = target
        self._handle = handle
        self._known = _read(handle)

    @classmethod
    def begin(cls, target: Path) -> Self:
        """UserError where there is something else."""
        make_directory(target)
        names = set(os.listdir(target))
        if MANIFEST_FILE in names:
            raise UserError(
                f"{target} has a backup", "name another directory; with --base this one is reused"
            )
        if names and JOURNAL_FILE not in names:
            raise UserError(f"{target} is not empty", "name a directory that is, or a new one")
        handle = os.open(target / JOURNAL_FILE, _FLAGS, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(target, handle)
        except BlockingIOError as error:
            os.close(handle)
            raise UserError(
                f"another backup is being made in {target}", "wait for it, or name another place"
            ) from error
        except BaseException:
            os.close(handle)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def places(self, path: Path) -> Iterator[tuple[Path, SavedFile]]:
        """Where a file was copied to by an earlier run: to the same path."""
        saved = self._known.get(self._name(path))
        if saved is not None:
            yield path, saved

    def note(self, path: Path, saved: SavedFile) -> None:
        """The file is on the disk. One that was still written to is not noted."""
        if saved.source is None or self._known.get(self._name(path)) == saved:
            return
        line = json.dumps([self._name(path), file_fields(saved)], separators=(",", ":"))
        os.write(self._handle, f"{line}\n".encode())

    def remove(self) -> None:
        (self._target / JOURNAL_FILE).unlink(missing_ok=True)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._target))


def _read(handle: int) -> dict[str, SavedFile]:
    found: dict[str, SavedFile] = {}
    size_bytes = os.fstat(handle).st_size
    if size_bytes > JOURNAL_BYTES_MAX:
        return found
    data = os.pread(handle, size_bytes, 0)
    if data and not data.endswith(b"\n"):
        os.write(handle, b"\n")  # the next line is one of its own
    for line in data.split(b"\n"):
        try:
            match json.loads(line):
                case [str(name), fields]:
                    found[name] = read_file_fields(fields)
        except (ValueError, RecursionError):
            continue
    return found
