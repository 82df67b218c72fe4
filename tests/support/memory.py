"""A directory in memory, where that can be had: for thousands of syncs that no test asks for.

What a test says of a disk it says of one that keeps nothing; a disk that fails is made by faults
(kbroker/testing/file_faults.py), not by waiting for a sound one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")


@contextmanager
def directory() -> Iterator[Path]:
    """An empty one, gone with the block; elsewhere than in memory where there is none."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)
