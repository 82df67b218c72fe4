"""The journal of a study: a line for each finished block, so that a cut run goes on where it was.

One file per plan, named after the study and the plan's hash (points, rounds, settings, the code and
the machine), so that a changed plan never goes on with another one's blocks. The first line says
what the plan is; then one JSON object per line, each synced before the next block begins; it goes
when the study's results are written. After a crash or power cut the file may end in half a line,
which is cut off; a damaged line elsewhere is an error, in one line. A running study holds the
file's lock: the same command started twice is refused.

Nothing is taken on trust: sizes are bounded, and study.py checks the content of every entry.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LINE_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 256 << 20
HASH_CHARS = 12


class JournalError(OSError):
    """The journal cannot be used; the message says what to do."""


def plan_hash(plan: Mapping[str, Any]) -> str:
    """The name of a plan: equal for equal content, whatever the order of its keys."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]


class Journal:
    """Append-only, one writer. Use as a context manager."""

    def __init__(self, directory: Path, study: str, plan: Mapping[str, Any]) -> None:
        """Make or open the plan's file and take its lock. JournalError, OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        self._head = {"study": study, "plan": plan_hash(plan)}
        self.path = directory / f"{study}-{self._head['plan']}.jsonl"
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            self.entries = self._read()
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"{self.path} is in use: the same study is running; wait for it to end"
            ) from None

    def _read(self) -> list[dict[str, Any]]:
        size = os.fstat(self._fd).st_size
        if size > FILE_BYTES_MAX:
            raise self._damaged(f"has {size:,} bytes")
        data = os.pread(self._fd, size, 0)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._fd, whole)  # the line that a crash cut in two
        lines = data[:whole].split(b"\n")[:-1]
        if not lines:
            self.append(self._head)
            return []
        parsed = [self._parse(number, line) for number, line in enumerate(lines, start=1)]
        if parsed[0] != self._head:
            raise self._damaged("does not begin with its plan")
        return parsed[1:]

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line) if len(line) <= LINE_BYTES_MAX else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._damaged(f"is damaged in line {number}")
        return found

    def _damaged(self, what: str) -> JournalError:
        return JournalError(f"the journal {self.path} {what}: remove it to begin anew")

    def append(self, entry: Mapping[str, Any]) -> None:
        """One line, on the disk when this returns."""
        line = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise JournalError(f"an entry of {len(line):,} bytes, over {LINE_BYTES_MAX:,}")
        if os.write(self._fd, line) != len(line):
            raise JournalError(f"{self.path}: the disk is full; the study goes on from here later")
        os.fsync(self._fd)

    def clear(self) -> None:
        """Forget all entries: the study begins anew."""
        os.ftruncate(self._fd, 0)
        self.entries = []
        self.append(self._head)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
