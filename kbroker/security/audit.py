"""The audit log: who changed what, and who was refused, as lines of JSON in a file of its own.

Place in the flow: the server makes one if `kbroker.audit.file` is set. Handlers note changes
(`handlers/audited.py`) and refused logins, the authorizer notes denials. `note` queues a function
that makes the record; the audit log's own thread calls it and writes the line. So no request waits
for the disk, and a disk that is full or hangs costs lines and nothing else.

**Bounds.** The queue has `AUDIT_WAITING_MAX` records, which hold `AUDIT_WAITING_BYTES_MAX` bytes of
requests and responses. Each kind has `kbroker.audit.max.lines.per.second`, so that a client that is
refused a thousand times a second does not push out the changes of others. A file has
`kbroker.audit.max.bytes`, and `kbroker.audit.max.files` are kept: FILE, FILE.1, FILE.2 and so on.
Records that were left out are counted, and a line says how many of which kind, and why.

**After a crash** the last line may be cut; the next begins on a line of its own. Lines that were
not written yet are lost: the file is not synced.

Any thread may call `note`. The lock, a leaf, guards the queue and the counts; it is not held while
a record is made or written.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS
from kbroker.limits import (
    AUDIT_LEFT_OUT_PERIOD_MS,
    AUDIT_LINE_BYTES_MAX,
    AUDIT_TEXT_CHARS_MAX,
    AUDIT_WAITING_BYTES_MAX,
    AUDIT_WAITING_MAX,
)
from kbroker.log_lines import LogLines
from kbroker.outside_text import printable
from kbroker.own_thread import OwnThread
from kbroker.security.rights import RESOURCE_NAMES

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.security.denials import Denied

logger: Final = logging.getLogger("kbroker.audit")
lines: Final = LogLines(logger)

THREAD_NAME: Final = "kbroker-audit"
FILE_MODE: Final = 0o600

Record = Mapping[str, object]
MakeRecord = Callable[[], Record]


class Kind(Enum):
    """What is counted for itself."""

    CHANGE = "change"
    LOGIN = "authentication"
    DENIAL = "authorization"


class Bounds(NamedTuple):
    bytes_max: int
    files_max: int
    lines_per_second: int


class _Waiting(NamedTuple):
    time_ms: int
    kind: Kind
    make: MakeRecord
    size_bytes: int


class _Second:
    """How many records of a kind there were since a moment, in ms of the monotonic clock."""

    __slots__ = ("began_ms", "count")

    def __init__(self) -> None:
        self.began_ms = 0
        self.count = 0


class AuditFile:
    """The file that is written, and the older ones beside it. Owner: one thread."""

    def __init__(self, path: str, bounds: Bounds) -> None:
        self._path = path
        self._bounds = bounds
        self._descriptor = -1
        self._size = 0
        self._is_torn = False

    def open(self) -> None:
        """OSError: it cannot be written, or is no file of a disk: opening a pipe could hang."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, FILE_MODE)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "it is no regular file")
        self._size = found.st_size
        self._is_torn = self._size > 0 and not self._ends_a_line()

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def write(self, line: bytes) -> None:
        """`line` ends with a newline. OSError: it is not written, or not as a whole."""
        if self._descriptor < 0 or not self._is_the_file():
            self.close()
            self.open()
        if self._size and self._size + len(line) > self._bounds.bytes_max:
            self._turn_over()
        data = b"\n" + line if self._is_torn else line
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        finally:
            self._size += done
            if done:
                self._is_torn = done < len(data)

    def _ends_a_line(self) -> bool:
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _is_the_file(self) -> bool:
        """Whether the path still leads to the file that is open: another program may move it."""
        try:
            there, here = os.stat(self._path), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def _turn_over(self) -> None:
        self.close()
        for number in range(self._bounds.files_max - 1, 0, -1):
            older, newer = f"{self._path}.{number}", self._path
            if number > 1:
                newer = f"{self._path}.{number - 1}"
            if os.path.exists(newer):
                os.replace(newer, older)
        if self._bounds.files_max == 1:
            os.unlink(self._path)
        self.open()


class AuditLog:
    def __init__(self, path: str, bounds: Bounds, clock: Clock, node_id: int) -> None:
        self._clock = clock
        self._node_id = node_id
        self._bounds = bounds
        self._file = AuditFile(path, bounds)
        self._path = path
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._left_out: Counter[tuple[Kind, str]] = Counter()
        self._left_out_due_ms = 0
        self._seconds = {kind: _Second() for kind in Kind}
        self._stopping = False
        self.thread: Final = OwnThread(THREAD_NAME, self._run)

    def start(self) -> None:
        """OSError: the file cannot be written."""
        self._file.open()
        self.thread.start()

    def stop(self) -> None:
        """Writes what waits, for as long as a thread has to end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.thread.await_end()

    def note(self, kind: Kind, make: MakeRecord, size_bytes: int = 0) -> bool:
        """Have a record written; never waits. False if it is left out, and counted.

        `make` is called on the audit log's thread; it holds `size_bytes` of requests till then.
        """
        now_ms = self._clock.monotonic_ms()
        with self._changed:
            why = self._full_locked(kind, now_ms, size_bytes)
            if why is None:
                self._waiting.append(_Waiting(self._clock.wall_ms(), kind, make, size_bytes))
                self._waiting_bytes += size_bytes
            else:
                self._left_out[kind, why] += 1
            self._changed.notify()
        return why is None

    def note_denial(self, what: Denied, rule: str, count: int, first_ms: int, last_ms: int) -> None:
        """Denials that are alike, as the log of denials counts them."""
        self.note(Kind.DENIAL, denied(what, rule, count, first_ms, last_ms))

    def _full_locked(self, kind: Kind, now_ms: int, size_bytes: int) -> str | None:
        """Why no record of this kind is taken now; None: one is."""
        second = self._seconds[kind]
        if now_ms - second.began_ms >= 1_000:
            second.began_ms, second.count = now_ms, 0
        if second.count >= self._bounds.lines_per_second:
            return "rate"
        if len(self._waiting) >= AUDIT_WAITING_MAX:
            return "queue"
        if self._waiting_bytes + size_bytes > AUDIT_WAITING_BYTES_MAX:
            return "queue"
        second.count += 1
        return None

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._stopping or self._is_due_locked()):
                    self._clock.wait_until(self._changed, self._wake_ns_locked())
                stopping = self._stopping and not self._waiting
                left_out = self._take_left_out_locked(stopping=stopping)
                each = self._waiting.popleft() if self._waiting else None
                if each is not None:
                    self._waiting_bytes -= each.size_bytes
            for (kind, why), count in left_out.items():
                self._write(kind, self._line_of_left_out(kind, why, count), count)
            if each is not None:
                self._write(each.kind, self._line_of(each))
            elif stopping:
                self._file.close()
                return

    def _is_due_locked(self) -> bool:
        return bool(self._left_out) and self._clock.monotonic_ms() >= self._left_out_due_ms

    def _wake_ns_locked(self) -> int | None:
        return self._left_out_due_ms * NS_PER_MS if self._left_out else None

    def _take_left_out_locked(self, *, stopping: bool) -> Counter[tuple[Kind, str]]:
        if not ((self._left_out and stopping) or self._is_due_locked()):
            return Counter()
        taken, self._left_out = self._left_out, Counter()
        self._left_out_due_ms = self._clock.monotonic_ms() + AUDIT_LEFT_OUT_PERIOD_MS
        return taken

    def _write(self, kind: Kind, line: bytes, count: int = 1) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            self._file.close()
            lines.write(
                logging.WARNING, "disk", "the audit log %s cannot be written: %s",
                self._path, error.strerror or type(error).__name__,
            )  # fmt: skip
            with self._changed:
                self._left_out[kind, "disk"] += count
                due_ms = self._clock.monotonic_ms() + AUDIT_LEFT_OUT_PERIOD_MS
                self._left_out_due_ms = max(self._left_out_due_ms, due_ms)

    def _line_of(self, each: _Waiting) -> bytes:
        try:
            record = each.make()
        except Exception as error:
            self.thread.failures.note("a record", error)
            record = {"event": "Unreadable", "error": type(error).__name__}
        line = self._encoded(each.time_ms, each.kind, record)
        if len(line) > AUDIT_LINE_BYTES_MAX:
            kept = {key: value for key, value in record.items() if not isinstance(value, list)}
            line = self._encoded(each.time_ms, each.kind, {**kept, "cut_bytes": len(line)})
        return line

    def _line_of_left_out(self, kind: Kind, why: str, count: int) -> bytes:
        record = {"event": "LeftOut", "count": count, "because_of": why}
        return self._encoded(self._clock.wall_ms(), kind, record)

    def _encoded(self, time_ms: int, kind: Kind, record: Record) -> bytes:
        """ASCII: what others have chosen cannot end a line, nor move a cursor."""
        fields = {
            "time": moment(time_ms), "node_id": self._node_id, "kind": kind.value, **record,
        }  # fmt: skip
        return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def refused_login(claimed: str, host: str, listener: str, why: str) -> MakeRecord:
    """The record of a client that is not let in; `claimed` is the user that it named, if any."""

    def record() -> Record:
        return {
            "event": "Authentication",
            "claimed_user": printable(claimed, AUDIT_TEXT_CHARS_MAX),
            "host": host,
            "listener": listener,
            "outcome": "refused",
            "reason": printable(why, AUDIT_TEXT_CHARS_MAX),
        }

    return record


def denied(what: Denied, rule: str, count: int, first_ms: int, last_ms: int) -> MakeRecord:
    """The record of denials that are alike."""

    def record() -> Record:
        times: dict[str, object] = {}
        if count > 1:
            times = {"count": count, "first": moment(first_ms), "last": moment(last_ms)}
        return {
            "event": what.request.label,
            "principal": printable(what.principal, AUDIT_TEXT_CHARS_MAX),
            "host": what.host,
            "outcome": "refused",
            "operation": what.operation.name,
            "resource_type": RESOURCE_NAMES[what.resource.type],
            "resource": printable(str(what.resource.name), AUDIT_TEXT_CHARS_MAX),
            "rule": printable(rule, AUDIT_TEXT_CHARS_MAX),
            **times,
        }

    return record


def moment(time_ms: int) -> str:
    """`2026-11-30T00:21:07.042Z`."""
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
