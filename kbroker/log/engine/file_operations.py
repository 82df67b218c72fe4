"""The files that the log's Python reads, writes, renames and removes; one place for all of them.

What `_file_operations` is for the log's C, this is for its Python: here a test can make any
operation fail (`hook`), and here it is defined when a file counts as written. Every function raises
OSError, as those of `os` do.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from kbroker.log.engine._errors import SyncError
from kbroker.log.engine._results import LogFiles
from kbroker.log.opening import _looking

# Asked before each operation, by its name and path; raises the OSError that the operation is to
# meet. Of a write it answers how many bytes are taken before the disk is full, None: all.
hook: Callable[[str, str], int | None] | None = None

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
# The disk is full, or the process has no more descriptors or memory: there may be some again.
SHORT_OF: Final = frozenset({*NO_SPACE, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# Errors of the disk, and not of the process or for want of room.
DISK_FAILS: Final = frozenset({
    errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.ENOTDIR,
    errno.EACCES, errno.EPERM, errno.EUCLEAN, errno.ENOTCONN,
})  # fmt: skip
COPY_BYTES: Final = 1 << 20
READ_BYTES: Final = 1 << 16
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def loses_no_write(error: BaseException) -> bool:
    """Whether something was wanting that may be there again, and what was written is written."""
    if isinstance(error, OSError):
        return error.errno in SHORT_OF and not isinstance(error, SyncError)
    return isinstance(error, MemoryError)


def _before(operation: str, path: Path) -> int | None:
    return hook(operation, str(path)) if hook is not None else None


def _write(file: io.FileIO, path: Path, data: bytes) -> None:
    taken = _before("write", path)
    if taken is not None:
        file.write(data[:taken])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _sync(handle: int, path: Path) -> None:
    try:
        _before("sync", path)
        os.fsync(handle)
    except OSError as error:
        raise SyncError(error.errno, error.strerror, str(path)) from error


def read_file(path: Path) -> bytes:
    """All of it. By system calls alone, which `open` adds to: a start reads tens of thousands."""
    _before("open", path)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _before("read", path)
        parts = []
        while part := os.read(handle, READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(handle)


def read_part(path: Path, position: int, length: int) -> bytes:
    """So many bytes from there; OSError if there are fewer."""
    _before("open", path)
    with open(path, "rb", buffering=0) as file:
        _before("read", path)
        parts = bytearray()
        while len(parts) < length:
            part = os.pread(file.fileno(), length - len(parts), position + len(parts))
            if not part:
                raise OSError(errno.EIO, "shorter than it was", str(path))
            parts += part
        return bytes(parts)


def write_file(path: Path, data: bytes, *, sync: bool) -> None:
    """A new file, or its old content replaced in place: a crash may leave any part of it."""
    _before("open", path)
    with open(path, "wb", buffering=0) as file:
        _write(file, path, data)
        if sync:
            _sync(file.fileno(), path)


def append_to_file(path: Path, data: bytes) -> None:
    """After its present content; on the disk on return. A crash may leave any part of it."""
    _before("open", path)
    with open(path, "ab", buffering=0) as file:
        _write(file, path, data)
        _sync(file.fileno(), path)


def copy_part(source: Path, position: int, end: int, target: Path) -> None:
    """A new file with the bytes from `position` to `end`, on the disk on return."""
    _before("open", target)
    with open(target, "wb", buffering=0) as file:
        while position < end:
            part = read_part(source, position, min(COPY_BYTES, end - position))
            _write(file, target, part)
            position += len(part)
        _sync(file.fileno(), target)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Puts `data` in the file's place, all or nothing. Without `sync` a power cut may empty it."""
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, data, sync=sync)
    rename(temporary, path)
    if sync:
        sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Brings a file that is written to the disk, and its name."""
    _before("open", path)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(handle, path)
    finally:
        os.close(handle)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory last."""
    with open_directory(directory) as sync:
        sync()


@contextmanager
def open_directory(directory: Path) -> Iterator[Callable[[], None]]:
    """For a change that must not end for want of a descriptor: yields a function that makes the
    names in it last."""
    _before("open", directory)
    handle = os.open(directory, DIRECTORY_FLAGS)
    try:
        yield partial(_sync, handle, directory)
    finally:
        os.close(handle)


def is_there(path: Path) -> bool:
    """Whether something has that name, be it a link that leads nowhere. Another error than that it
    is not there is raised: `Path.exists` says no to some of them, and then it is not known."""
    _before("open", path)
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def rename(source: Path, target: Path) -> None:
    """Over what is there, where that is a file."""
    _before("rename", source)
    os.replace(source, target)


def unlink(path: Path) -> None:
    """Removes a file; one that is not there is as good as removed."""
    _before("unlink", path)
    path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Or leaves the one that is there. Its parent must be there."""
    _before("mkdir", path)
    path.mkdir(exist_ok=True)


def look_at_log(path: Path, metadata: str, epochs: str) -> LogFiles | None:
    """What is in a log's directory, and what the files of these two names say, in one pass; None
    where there is no directory."""
    if hook is None:
        return _looking.look(str(path), metadata, epochs)
    if not path.exists():
        return None
    sizes = {
        entry.name: entry.stat(follow_symlinks=False).st_size
        if entry.is_file(follow_symlinks=False)
        else -1
        for entry in list_directory(path)
    }
    small = [read_file(path / name) if name in sizes else None for name in (metadata, epochs)]
    return LogFiles(sizes, *small)


def list_directory(path: Path) -> list[os.DirEntry[str]]:
    """What is in it, in no order."""
    _before("list", path)
    with os.scandir(path) as entries:
        return list(entries)
