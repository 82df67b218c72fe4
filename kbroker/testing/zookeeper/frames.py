"""ZooKeeper's protocol, as far as kbroker's store speaks it: requests and responses.

A frame is its length and a payload, numbers are big-endian, texts and data have their length before
them, -1 for none. The first frame of a connection asks for a session; each later one begins with
its number (xid) and its type, its answer with xid, zxid and an error. Source: ZooKeeper 3.9,
"ZooKeeper Internals" and the fields of zookeeper.jute; kazoo is the client that it is held against.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
)
from kbroker.testing.zookeeper.tree import Znode

FRAME_BYTES_MAX: Final = 1 << 20  # as `jute.maxbuffer`, and a little more
PASSWORD_BYTES: Final = 16
READS_MAX: Final = 1_000  # of one request
WATCH_XID: Final = -1
ANY_VERSION: Final = -1
_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_CONNECTED_STATE: Final = 3

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = struct.Struct(">iqi")
_HELLO = struct.Struct(">iqiq")
_WELCOME = struct.Struct(">iiq")
_STAT = struct.Struct(">qqqqiiiqiiq")
_PART = struct.Struct(">i?i")


class Ask(IntEnum):
    """What a client may ask."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    MULTI_READ = 22
    CLOSE = -11


class Trouble(IntEnum):
    """ZooKeeper's error codes."""

    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111


TROUBLE_OF: Final[dict[type[StoreError], Trouble]] = {
    NoNodeError: Trouble.NO_NODE,
    BadVersionError: Trouble.BAD_VERSION,
    EphemeralParentError: Trouble.NO_CHILDREN_FOR_EPHEMERALS,
    NodeExistsError: Trouble.NODE_EXISTS,
    NotEmptyError: Trouble.NOT_EMPTY,
}


class FrameError(ValueError):
    """Bytes that are no frame of this protocol; the connection is ended."""


class NotServedError(Exception):
    """A request of this protocol that this server does not know: no client of ours sends it."""


class Hello(NamedTuple):
    """`session_id` 0 asks for a new session."""

    timeout_ms: int
    session_id: int
    password: bytes


class Reader:
    """The fields of a frame, one after the other. Raises FrameError where there is none."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def int32(self) -> int:
        return int(self._unpack(_INT)[0])

    def flag(self) -> bool:
        return self._bytes(1) != b"\0"

    def data(self) -> bytes:
        size = self.int32()
        return b"" if size < 0 else self._bytes(size)

    def text(self) -> str:
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise FrameError(f"a text that is no UTF-8: {error}") from error

    def hello(self) -> Hello:
        """The first frame, without the newer clients' field that says whether read-only will do."""
        _, _, timeout_ms, session_id = self._unpack(_HELLO)
        return Hello(timeout_ms, session_id, self.data())

    def operation(self, ask: int) -> Operation:
        """What CREATE, DELETE, SET_DATA or CHECK wants. Raises NotServedError."""
        path = self.text()
        match ask:
            case Ask.CREATE:
                data = self.data()
                for _ in range(self._count()):
                    self._skip_acl()
                flags = self.int32()
                if flags & ~(_EPHEMERAL | _SEQUENTIAL):
                    raise NotServedError
                return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
            case Ask.DELETE:
                return Delete(path, self._expected())
            case Ask.SET_DATA:
                data = self.data()
                return Set(path, data, self._expected())
            case Ask.CHECK:
                return Check(path, self.int32())
        raise NotServedError

    def operations(self) -> list[Operation]:
        """The parts of a MULTI. Raises NotServedError."""
        return [self.operation(ask) for ask in self._parts()]

    def reads(self) -> list[str]:
        """The paths of a MULTI_READ. Raises NotServedError."""
        found: list[str] = []
        for ask in self._parts():
            path, watch = self.text(), self.flag()
            if ask != Ask.GET_DATA or watch:
                raise NotServedError
            if len(found) == READS_MAX:
                raise FrameError(f"more than {READS_MAX} nodes are asked for at once")
            found.append(path)
        return found

    def _parts(self) -> Iterator[int]:
        """The request of each part; the caller reads it before it goes on."""
        while True:
            ask, done, _ = self._unpack(_PART)
            if done:
                return
            yield ask

    def _expected(self) -> int | None:
        version = self.int32()
        return None if version == ANY_VERSION else version

    def _count(self) -> int:
        return max(0, self.int32())

    def _skip_acl(self) -> None:
        self.int32()
        self.data()
        self.data()

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._bytes(form.size))

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._payload):
            raise FrameError(f"a frame of {len(self._payload)} bytes ends within a field")
        begin, self._at = self._at, end
        return self._payload[begin:end]


def framed(payload: bytes) -> bytes:
    return _INT.pack(len(payload)) + payload


def frame_bytes(head: bytes | bytearray) -> int:
    """The whole size of the frame that begins so; 0 where that is not known yet."""
    if len(head) < _INT.size:
        return 0
    size = int(_INT.unpack_from(head)[0])
    if not 0 < size <= FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size} bytes")
    return _INT.size + size


def welcome(timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The answer to a Hello; without a timeout: that session is over."""
    return _WELCOME.pack(0, timeout_ms, session_id) + data(password) + b"\0"


def answer(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(xid, zxid, error) + body


def event(type_: int, path: str) -> bytes:
    """A watch that fired."""
    body = _INT.pack(type_) + _INT.pack(_CONNECTED_STATE) + text(path)
    return answer(WATCH_XID, -1, 0, body)


def data(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value


def text(value: str) -> bytes:
    return data(value.encode())


def names(values: list[str]) -> bytes:
    return _INT.pack(len(values)) + b"".join(map(text, values))


def stat(node: Znode) -> bytes:
    """A node's state. No client of ours reads its times, so they are 0."""
    return _STAT.pack(
        *(node.created, node.changed, 0, 0, node.version, node.children_version, 0, node.owner),
        *(len(node.data), len(node.children), node.children_changed),
    )


def done(operation: Operation, version: int) -> bytes:
    """The response to an operation that was done, with the version that it left; of a node that
    was set only that, which is all that our clients read."""
    match operation:
        case Create():
            return text(operation.path)
        case Set():
            return _STAT.pack(0, 0, 0, 0, version, 0, 0, 0, len(operation.data), 0, 0)
    return b""


def parts_done(parts: Iterable[tuple[Operation, int]]) -> bytes:
    """The body of a MULTI that happened, with the versions that it left."""
    results = (_PART.pack(_ask_of(part), False, 0) + done(part, version) for part, version in parts)
    return b"".join(results) + _END


def parts_failed(count: int, failed: int, error: int) -> bytes:
    """The body of a MULTI that did not: those before were rolled back, those after not tried."""
    codes = [0] * failed + [error] + [Trouble.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    return b"".join(_PART.pack(-1, False, code) + _INT.pack(code) for code in codes) + _END


def parts_read(nodes: Iterable[Znode | None]) -> bytes:
    """The body of a MULTI_READ; None: there is no such node."""
    missing = _PART.pack(-1, False, Trouble.NO_NODE) + _INT.pack(Trouble.NO_NODE)
    head = _PART.pack(Ask.GET_DATA, False, 0)
    results = (missing if node is None else head + data(node.data) + stat(node) for node in nodes)
    return b"".join(results) + _END


def _ask_of(operation: Operation) -> Ask:
    match operation:
        case Create():
            return Ask.CREATE
        case Set():
            return Ask.SET_DATA
        case Delete():
            return Ask.DELETE
        case Check():
            return Ask.CHECK


_END: Final = _PART.pack(-1, True, -1)
