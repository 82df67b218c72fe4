"""One job for each topic and table: the second one is refused before it reads anything.

The lock is the kernel's, on a file beside the tables, and goes with the process however that ends.
Only local tables have it; elsewhere the ledger keeps two jobs apart: it refuses a batch
that does not begin where the table ends, so that one of the two stops and no row is doubled.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from spark_jobs.errors import Locked

DIRECTORY: Final = "_locks"


class JobLock:
    """Held from `take` to `release`; `root` is a qualified URI."""

    def __init__(self, root: str, topic: str) -> None:
        self._topic = topic
        self._root = root
        local = root.removeprefix("file://") if root.startswith("file:///") else None
        self._path = Path(local, DIRECTORY, f"{topic}.lock") if local is not None else None
        self._file: int | None = None

    def take(self) -> None:
        """Locked names the process that has it."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode("ascii", "replace").strip() or "?"
            os.close(file)
            raise Locked(
                f"{self._topic}: another job (process {holder}) lands it into {self._root};"
                " stop that one, or name other tables"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
