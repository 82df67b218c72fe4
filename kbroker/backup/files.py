"""The files of a backup: written for their owner alone, read with the suspicion they deserve.

A backup may come from anywhere, so nothing in it is opened that is not a regular file: no symbolic
link is followed below the directory that the operator named, and a named pipe does not hang the
reader. `check_names` refuses files that the manifest does not have, because the adoption of a log
takes what is in its directory.

Copies are made by the kernel, where it can (`copy_file_range`), which shares the blocks of a file
where the file system can. The digest of a file is the XXH3-64 of the XXH3-64 of each of its pieces
of four megabytes, each as eight bytes, big-endian. That of a copy is taken of the copy, whose pages
are mapped for it: the file is ours, so it does not become shorter meanwhile. Every 64 megabytes the
pages that were written go to the disk and out of memory, so that a backup does not displace the
pages of the broker, nor make its writes wait for a gigabyte of dirty pages.

OSError comes from the disk; ValueError says what is wrong with a file. One thread.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kbroker.backup.manifest import (
    JOURNAL_FILE,
    LOGS,
    MANIFEST_FILE,
    OWN_FILES,
    Manifest,
    SavedFile,
)
from kbroker.core._xxh3 import xxh3_64
from kbroker.errors import UsageError

PIECE_BYTES: Final = 4 << 20
SYNC_BYTES: Final = 64 << 20
SYNCS_MAX: Final = 2  # that are not done yet
SMALL_SYNCS: Final = 8  # at once
SMALL_SYNCS_MAX: Final = 64
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# The kernel or the file systems cannot copy by themselves.
_CANNOT: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_MASK: Final = 2**64 - 1


class Digest:
    """Of a file, of which it is given the pieces in their order; see the head of this file."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, piece: bytes | memoryview | mmap.mmap) -> None:
        """PIECE_BYTES, or less at the end."""
        self._pieces.append(_xxh3(piece))

    def text(self) -> str:
        return _xxh3(b"".join(self._pieces)).hex()


def _xxh3(data: bytes | memoryview | mmap.mmap) -> bytes:
    return (xxh3_64(data) & _MASK).to_bytes(8)


# --- Writing --------------------------------------------------------------------------------------


class Copies:
    """Writes files, with threads that bring them to the disk meanwhile; a context manager. All of
    them are on the disk at its end. Small files are synced some at a time, as a file system writes
    its journal once for all of them."""

    def __init__(self) -> None:
        self._syncing = ThreadPoolExecutor(1, "kbroker-backup-sync")
        self._buffer = memoryview(bytearray(PIECE_BYTES))
        self._by_kernel = True
        self._small = ThreadPoolExecutor(SMALL_SYNCS, "kbroker-backup-small")
        self._small_pending: deque[Future[None]] = deque()
        # Of the last syncs of copies: what is to be done when one has succeeded.
        self._pending: deque[tuple[Future[None], Callable[[], None]]] = deque()

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            while self._pending:
                try:
                    self._wait_for_one()
                except OSError:
                    if kind is None:  # else that is the first trouble
                        raise
            while kind is None and self._small_pending:
                self._small_pending.popleft().result()
        finally:
            self._syncing.shutdown()
            self._small.shutdown()

    def copy(
        self, source: int, size_bytes: int, target: Path, then: Callable[[SavedFile], None]
    ) -> SavedFile:
        """The first bytes of an open file, as a new file; `then` is called once that is on the
        disk, from a later call or the end."""
        digest = Digest()
        position = synced = 0
        with _new_file(target) as out:
            while position < size_bytes:
                length = min(PIECE_BYTES, size_bytes - position)
                self._copy_piece(source, out, position, length)
                with mmap.mmap(
                    out, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=position
                ) as piece:
                    digest.add(piece)
                position += length
                if position - synced >= SYNC_BYTES and position < size_bytes:
                    self._sync_soon(out, synced, position - synced, lambda: None)
                    synced = position
            saved = SavedFile(size_bytes, digest.text())
            self._sync_soon(out, synced, position - synced, lambda: then(saved))
        return saved

    def write(self, target: Path, data: bytes) -> SavedFile:
        """A new small file with these bytes."""
        with _new_file(target) as out:
            _write_all(out, memoryview(data))
            self._sync_small(os.dup(out))
        return SavedFile(len(data), digest_of(data))

    def sync_directory(self, path: Path) -> None:
        self._sync_small(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def _sync_small(self, handle: int) -> None:
        while len(self._small_pending) >= SMALL_SYNCS_MAX:
            self._small_pending.popleft().result()
        self._small_pending.append(self._small.submit(_sync_and_close, handle))

    def _sync_soon(self, out: int, position: int, length: int, done: Callable[[], None]) -> None:
        while len(self._pending) >= SYNCS_MAX:
            self._wait_for_one()
        handle = os.dup(out)
        self._pending.append((self._syncing.submit(_settle, handle, position, length), done))

    def _wait_for_one(self) -> None:
        future, done = self._pending.popleft()
        try:
            future.result()
        except OSError:
            # A later sync of the same file succeeds, though the pages are lost.
            self._pending.clear()
            raise
        done()

    def _copy_piece(self, source: int, out: int, position: int, length: int) -> None:
        while length:
            taken = self._copied(source, out, position, length)
            if not taken:
                raise ValueError("a file became shorter while it was read")
            position, length = position + taken, length - taken

    def _copied(self, source: int, out: int, position: int, length: int) -> int:
        if self._by_kernel:
            try:
                return os.copy_file_range(source, out, length, position, position)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self._by_kernel = False
        part = self._buffer[:length]
        return os.pwrite(out, part[: os.preadv(source, [part], position)], position)


def write_file(target: Path, data: bytes) -> SavedFile:
    """A new file with these bytes, on the disk on return."""
    with _new_file(target) as out:
        _write_all(out, memoryview(data))
        os.fsync(out)
    return SavedFile(len(data), digest_of(data))


def digest_of(data: bytes) -> str:
    digest = Digest()
    for position in range(0, len(data), PIECE_BYTES):
        digest.add(memoryview(data)[position : position + PIECE_BYTES])
    return digest.text()


def replace_file(target: Path, data: bytes) -> None:
    """All or nothing, on the disk with its name."""
    beside = target.with_name(f"{target.name}.tmp")
    write_file(beside, data)
    os.replace(beside, target)
    sync_directory(target.parent)


def make_directory(path: Path) -> None:
    """For its owner alone, or the one that is there; NotADirectoryError for anything else."""
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise NotADirectoryError(20, "it is no directory", str(path)) from None


def check_outside(target: Path, others: Iterable[Path]) -> None:
    """UsageError where a new directory is one of the others, or would be in it: a broker reads the
    names in its data directory, and a backup has no files but its own."""
    for other in others:
        if target.resolve().is_relative_to(other.resolve()):
            raise UsageError(f"{target} overlaps {other}", "name a place outside")


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _new_file(target: Path) -> Iterator[int]:
    """A file that was there may be linked into another backup, so it is not written into."""
    target.unlink(missing_ok=True)
    handle = os.open(target, _WRITE, FILE_MODE)
    try:
        yield handle
    finally:
        os.close(handle)


def _write_all(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _settle(handle: int, position: int, length: int) -> None:
    """Closes the descriptor."""
    try:
        os.fdatasync(handle)
        os.posix_fadvise(handle, position, length, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _sync_and_close(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- Reading --------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A regular file, and nothing else; ValueError."""
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{path} is no file")
        yield handle
    finally:
        os.close(handle)


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """All of a file; ValueError where it has more bytes."""
    with opened(path) as handle:
        size_bytes = os.fstat(handle).st_size
        if size_bytes > bytes_max:
            raise ValueError(f"{path} has {size_bytes:,} bytes, more than {bytes_max:,}")
        parts: list[bytes] = []
        left = bytes_max
        while left and (part := os.read(handle, min(PIECE_BYTES, left))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def check_file(path: Path, saved: SavedFile) -> None:
    """ValueError where a file is not as the manifest has it."""
    digest = Digest()
    buffer = memoryview(bytearray(PIECE_BYTES))
    with opened(path) as handle:
        _check_size(path, os.fstat(handle).st_size, saved)
        for position in range(0, saved.size_bytes, PIECE_BYTES):
            piece = buffer[: min(PIECE_BYTES, saved.size_bytes - position)]
            _read_whole(handle, position, piece, path)
            digest.add(piece)
    if digest.text() != saved.xxh3:
        raise ValueError(f"{path} is damaged: its digest is not that of the manifest")


def _read_whole(handle: int, position: int, piece: memoryview, path: Path) -> None:
    done = 0
    while done < len(piece):
        taken = os.preadv(handle, [piece[done:]], position + done)
        if not taken:
            raise ValueError(f"{path} became shorter while it was read")
        done += taken


def check_names(backup: Path, manifest: Manifest) -> None:
    """Every file is there with its size, and no other; ValueError names the first that is not."""
    logs = backup / LOGS
    own = {name.removeprefix(f"{LOGS}/") for name in OWN_FILES if "/" in name}
    above = {MANIFEST_FILE, *OWN_FILES} - {f"{LOGS}/{name}" for name in own}
    if (backup / JOURNAL_FILE).exists():  # the run ended before it removed that
        above.add(JOURNAL_FILE)
    _check_entries(backup, above, {LOGS})
    _check_entries(logs, own, {str(name) for name in manifest.partitions})
    for name, saved in manifest.files.items():
        _check_size(backup / name, (backup / name).lstat().st_size, saved)
    for partition, entry in manifest.partitions.items():
        directory = logs / str(partition)
        _check_entries(directory, {*entry.files}, set())
        for name, saved in entry.files.items():
            _check_size(directory / name, (directory / name).lstat().st_size, saved)


def _check_entries(directory: Path, files: set[str], directories: set[str]) -> None:
    found_files: set[str] = set()
    found_directories: set[str] = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                found_files.add(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                found_directories.add(entry.name)
            else:
                raise ValueError(f"{entry.path} is neither a file nor a directory")
    for found, wanted in ((found_files, files), (found_directories, directories)):
        if missing := wanted - found:
            raise ValueError(f"{directory / min(missing)} is not there")
        if other := found - wanted:
            raise ValueError(f"{directory / min(other)} is not in the manifest")


def _check_size(path: Path, size_bytes: int, saved: SavedFile) -> None:
    if size_bytes != saved.size_bytes:
        raise ValueError(
            f"{path} is damaged: it has {size_bytes:,} bytes, not {saved.size_bytes:,}"
        )
