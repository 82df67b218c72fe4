"""Real text, the same on every run of one interpreter: the sources of Python's standard library.

Lines of every length, with tabs, quotes and some non-ASCII letters, and no megabytes to ship. Empty
lines are left out, because kcat does not send them; so is anything longer than a record should be.
"""

from __future__ import annotations

import functools
import itertools
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LINE_BYTES_MAX = 4000
BIG_BYTES_DEFAULT = 32_000_000
# A client sends a batch of fewer as it is, where packing would not make it smaller.
RECORDS_THAT_PACK = 10


@functools.cache
def _library() -> tuple[bytes, ...]:
    root = Path(sysconfig.get_paths()["stdlib"])
    lines: list[bytes] = []
    for path in sorted([*root.glob("*.py"), *root.glob("*/*.py")]):
        if path.parent.name in ("site-packages", "dist-packages"):  # varies by machine
            continue
        lines += [
            line for line in path.read_bytes().splitlines() if 0 < len(line) <= LINE_BYTES_MAX
        ]
    return tuple(lines)


def lines(size_bytes: int) -> Iterator[bytes]:
    """Lines without their ends, of at least size_bytes in all, each end counted as one byte."""
    done = 0
    for line in itertools.cycle(_library()):
        yield line
        done += len(line) + 1
        if done >= size_bytes:
            return


def blocks(size_bytes: int, block_bytes: int) -> Iterator[bytes]:
    """The same text in pieces of some block_bytes, each of whole lines."""
    block: list[bytes] = []
    held = 0
    for line in lines(size_bytes):
        block.append(line)
        held += len(line) + 1
        if held >= block_bytes:
            yield b"\n".join(block)
            block, held = [], 0
    if block:
        yield b"\n".join(block)


def big_bytes() -> int:
    """How much the slow tests stream; the full measure is 1 GB (KBROKER_BIG_BYTES=1000000000)."""
    return int(os.environ.get("KBROKER_BIG_BYTES", BIG_BYTES_DEFAULT))
