"""The files of a log under a broker that goes on with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def bytes_of(log: Path) -> int:
    """Of the segments in a log's directory. A file whose name is taken away meanwhile, by a
    cleaning or by retention, weighs nothing."""
    total = 0
    for file in log.glob("*.log"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
