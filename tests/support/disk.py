"""A disk that can be slow: disk.c, compiled and preloaded into a broker."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
DEADLINE_S = 60.0


class Disk:
    """What the preloaded library does to the files whose path has `files` in it."""

    def __init__(
        self, root: Path, *, files: str = "/flushed-", operations: str = "fdatasync"
    ) -> None:
        self._library = root / "disk.so"
        self._mode = root / "disk-mode"
        self._held = root / "disk-mode.held"
        self._files = files
        self._operations = operations
        command = ["cc", "-shared", "-fPIC", "-O1", str(SOURCE), "-o", str(self._library), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self.be("ok")

    def be(self, mode: str) -> None:
        """From the next operation on; see the head of disk.c."""
        fresh = self._mode.with_suffix(".new")
        fresh.write_text(mode)
        fresh.replace(self._mode)

    def held(self) -> list[str]:
        """The files of operations that were held, the first ones first."""
        return self._held.read_text().splitlines() if self._held.exists() else []

    def wait_held(self, count: int) -> None:
        """Until so many operations have been held since the start."""
        until = time.monotonic() + DEADLINE_S
        while len(self.held()) < count:
            assert time.monotonic() < until, f"{count} operations held, of {self.held()}"
            time.sleep(0.002)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "TEST_DISK": str(self._mode),
            "TEST_DISK_FILES": self._files,
            "TEST_DISK_OPERATIONS": self._operations,
        }
