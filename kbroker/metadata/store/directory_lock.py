"""One process per directory: an advisory lock that dies with its owner.

Place in the flow: the embedded store takes it before it opens its database, and gives it back after
it has closed it. The lock is `flock(2)` on a small file, so the kernel drops it at the very end of
the owner, kill -9 included; the file itself stays and a stale one never keeps a process out. Its
text is the owner's pid, for the message only: the lock decides, not the text. `flock` belongs to
the open file, so a second attempt within one process is refused as well.

Not thread-safe; one owner acquires and releases. Never blocks.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from kbroker.errors import DataDirectoryError

# A pid has at most 7 digits on Linux; anything longer was not written by us.
_PID_TEXT_BYTES_MAX: Final = 32


class DirectoryLock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        """Raises DataDirectoryError if another process holds it or the file cannot be made."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryError(
                f"cannot open {path}: {error.strerror}",
                "give the broker a data directory that it may write to",
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            holder = self._holder_text() if isinstance(error, BlockingIOError) else None
            os.close(self._fd)
            self._fd = -1
            if holder is None:
                raise DataDirectoryError(f"cannot lock {path}: {error.strerror}") from error
            raise DataDirectoryError(
                f"data directory {path.parent} is in use by another process ({holder})",
                "stop that process, or name another data directory",
            ) from None

    def release(self) -> None:
        """Give the lock back; again is nothing. The file stays: unlinking it would let two in."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _holder_text(self) -> str:
        text = os.pread(self._fd, _PID_TEXT_BYTES_MAX, 0).decode("ascii", "replace").strip()
        return f"pid {text}" if text.isdecimal() else "pid unknown"
