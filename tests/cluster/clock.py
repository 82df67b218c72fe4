"""A broker's own wall clock, which jumps as a machine's does when it is set: clock.c.

The library is preloaded into `kbroker start` and reads by how much it is ahead from a file.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def is_possible() -> bool:
    return shutil.which("cc") is not None


class WallClock:
    def __init__(self, folder: Path) -> None:
        self._library = folder / "clock.so"
        self._ahead = folder / "clock-ahead"
        self.set(0)
        command = ["cc", "-shared", "-fPIC", "-O1", str(SOURCE), "-o", str(self._library), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)

    def set(self, ahead_s: float) -> None:
        """So many seconds before the machine's from now on; after it, where less than 0."""
        with open(self._ahead, "r+b" if self._ahead.exists() else "w+b") as file:
            file.write(struct.pack("=q", round(ahead_s * 1_000_000_000)))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "TEST_CLOCK": str(self._ahead)}
