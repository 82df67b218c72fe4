"""What a test itself has opened or dropped: others' things in this process come and go.

Threads and garbage of earlier tests close descriptors when they like, and a collection that comes
by itself is counted wherever collections are counted.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path


def open_below(directory: Path) -> int:
    """Descriptors of that directory and of files in it, those that have been removed too."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += f"{os.readlink(f'/proc/self/fd/{number}')}/".startswith(f"{directory}/")
    return count


@contextlib.contextmanager
def collected_by_hand() -> Iterator[None]:
    """Earlier tests' garbage has gone, and within the block none goes by itself."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
