"""Reads that do not wait for the disk, on file systems that can say so and on those that cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.testing._file_faults import read_now

PAGE = 4096


@pytest.fixture
def memory() -> Iterator[int]:
    """A file without RWF_NOWAIT: its second page is a hole, which no page cache has."""
    fd = os.memfd_create("read-now")
    os.pwrite(fd, b"x" * PAGE, 0)
    os.truncate(fd, 3 * PAGE)
    os.pwrite(fd, b"y" * PAGE, 2 * PAGE)
    with pytest.raises(OSError, match="not supported"):
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    yield fd
    os.close(fd)


def test_written_bytes_are_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * PAGE)
    with path.open("rb") as file:
        assert read_now(file.fileno(), PAGE, 0) == b"x" * PAGE
        assert read_now(file.fileno(), 100, PAGE - 100) == b"x" * 100


def test_where_the_file_system_cannot_say_the_page_cache_is_asked(memory: int) -> None:
    assert read_now(memory, PAGE, 0) == b"x" * PAGE
    assert read_now(memory, 100, 2 * PAGE + 50) == b"y" * 100
    for at, length in ((PAGE, PAGE), (PAGE + 10, 20), (0, 2 * PAGE), (PAGE, 2 * PAGE)):
        with pytest.raises(BlockingIOError) as raised:
            read_now(memory, length, at)
        assert raised.value.errno == errno.EAGAIN
