"""Files of a directory that are all there or not there, also after a kill or a crash.

A list of their names is written first. While it is there and the last of them is not, the directory
is unfinished: whatever has its name in the list may be half written, goes with nothing else, and is
removed by the next command. Each file gets its name when it is on the disk. The list is locked by
the command that runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kbroker.errors import UsageError

LIST_FILE: Final = ".unfinished"
_SECRET: Final = 0o600
_CREATED: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class FilesTogether:
    """A context manager: what was written is removed if its body fails. UsageError: one of the
    files is there already, or another command writes them now."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._directory = directory
        self._names = names
        self._list = directory / LIST_FILE
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._list, _CREATED, _SECRET)
        try:
            self._lock()
            settle(self._directory)
            self._refuse_files_of_others()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, "\n".join(self._names).encode(), 0)
            os.fsync(self._descriptor)
            self._sync()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is not None:
                _remove(self._directory, self._names)
            self._list.unlink(missing_ok=True)
            self._sync()
        finally:
            os.close(self._descriptor)

    def write(self, path: Path, data: bytes, mode: int) -> None:
        """Never readable for others in between."""
        new = _new(path)
        descriptor = os.open(new, _CREATED | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
        self._sync()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_gone = not os.fstat(self._descriptor).st_nlink
        except BlockingIOError:
            is_gone = True
        if is_gone:
            raise UsageError(f"another command writes to {self._directory}", "let it end")

    def _refuse_files_of_others(self) -> None:
        for name in self._names:
            path = self._directory / name
            if os.path.lexists(path):
                self._list.unlink(missing_ok=True)
                raise UsageError(
                    f"{path} is there already", "choose another directory, or remove it"
                )

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def settle(directory: Path) -> None:
    """Removes the files of a command that was ended before it had written the last one; the list
    alone, if that was all that was left to remove."""
    try:
        listed = (directory / LIST_FILE).read_text(errors="replace")
    except FileNotFoundError:
        return
    names = [name for name in listed.split() if name.isprintable() and "/" not in name]
    if names and not (directory / names[-1]).exists():
        _remove(directory, names)  # the list stays, for the files that come
    elif names:
        (directory / LIST_FILE).unlink(missing_ok=True)


def _remove(directory: Path, names: Sequence[str]) -> None:
    """The last one first: what is left in between is unfinished."""
    for name in reversed(names):
        (directory / name).unlink(missing_ok=True)
        _new(directory / name).unlink(missing_ok=True)


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
