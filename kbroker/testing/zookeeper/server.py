"""A ZooKeeper for brokers under test: one server, in memory, in a thread of the test. No Java.

    with ZooKeeperServer() as zookeeper:
        Broker({"zookeeper.connect": zookeeper.connect, "broker.id": 1})

It serves what kbroker's store asks for: sessions that expire without a message, reads
with watches, transactions, sync. It has no users, no quorum and nothing on disk. Its promises
are those of ZooKeeper in the store's contract, and the same tests check them.

Threads: everything of a server and its sessions happens on a `LoopThread`; the methods for tests
hand over to it and wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final, Self, cast

from kbroker.metadata.store.base import (
    Create,
    Delete,
    EventType,
    MultiError,
    Operation,
    StoreError,
    parent_of,
)
from kbroker.testing.loop_thread import LoopThread
from kbroker.testing.zookeeper import frames
from kbroker.testing.zookeeper.frames import Ask, FrameError, NotServedError, Reader, Trouble
from kbroker.testing.zookeeper.tree import Changes, Tree

log = logging.getLogger("kbroker.testing")

HOST: Final = "127.0.0.1"
# A client that does not read, a stopped process, is disconnected after so much.
_UNREAD_BYTES_MAX: Final = 16 << 20
_TIMEOUT_MS: Final = (100, 600_000)
_DATA_EVENTS: Final = {EventType.CREATED: 1, EventType.DELETED: 2, EventType.CHANGED: 3}
_CHILD_EVENT: Final = 4


class _Session:
    """A client, with or without a connection, until it sent nothing for its timeout."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.password = secrets.token_bytes(frames.PASSWORD_BYTES)
        self.connection: _Connection | None = None
        self.received_s = 0.0
        self.looked_at: asyncio.TimerHandle | None = None


class ZooKeeperServer:
    """See the head of this file."""

    def __init__(self, thread: LoopThread | None = None) -> None:
        """`thread`: where all of it happens, if that is not its own."""
        self.port = 0
        self.lost = False
        self.tree = Tree()
        self._owns_thread = thread is None
        self._thread = thread or LoopThread()
        self._loop = self._thread.loop
        self._listener: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        # Of connections, as ZooKeeper keeps them: one that is lost has no watches any more.
        self._data_watches: dict[str, set[_Connection]] = {}
        self._child_watches: dict[str, set[_Connection]] = {}

    # --- for tests --------------------------------------------------------------------------------

    @property
    def connect(self) -> str:
        """For `zookeeper.connect`."""
        return f"{HOST}:{self.port}"

    def start(self) -> Self:
        self._thread.call(self._listen)
        return self

    def close(self) -> None:
        """May be called again."""
        if self._listener is not None:
            self._thread.call(self._stop_listening)
        if self._owns_thread:
            self._thread.close()

    def lose(self) -> None:
        """No client is served, as without a quorum; no session expires meanwhile."""

        def lose() -> None:
            self.lost = True
            for connection in list(self._connections):
                connection.abort()

        self._thread.call(lose)

    def come_back(self) -> None:
        """Served again; every session has its whole timeout."""

        def come_back() -> None:
            self.lost = False
            for session in self._sessions.values():
                self._renew(session)
                self._look_later(session)

        if self.lost:
            self._thread.call(come_back)

    def sessions(self) -> list[int]:
        """The ids of the sessions there are."""
        found: list[int] = self._thread.call(lambda: sorted(self._sessions))
        return found

    def expire(self, session_id: int) -> None:
        """End a session as one that sent nothing."""
        self._thread.call(lambda: self._end(session_id))

    def data_of(self, path: str) -> bytes | None:
        """What a node has; None: it is not there."""

        def data() -> bytes | None:
            node = self.tree.find(path)
            return None if node is None else node.data

        found: bytes | None = self._thread.call(data)
        return found

    def is_held(self, path: str) -> bool:
        """Whether an ephemeral node is there and its session has a connection."""

        def held() -> bool:
            node = self.tree.find(path)
            session = None if node is None else self._sessions.get(node.owner)
            return session is not None and session.connection is not None

        found: bool = self._thread.call(held)
        return found

    def owner_of(self, path: str) -> int | None:
        """The session of an ephemeral node; None: it is not there."""

        def owner() -> int | None:
            node = self.tree.find(path)
            return None if node is None else node.owner

        found: int | None = self._thread.call(owner)
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the loop's thread ---------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await self._loop.create_server(
                lambda: _Connection(self), HOST, self.port, reuse_address=True
            )
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # until they have been notified

    def connected(self, connection: _Connection) -> None:
        self._connections.add(connection)
        if self.lost:
            connection.abort()

    def disconnected(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection.session is not None and connection.session.connection is connection:
            connection.session.connection = None
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, those in watches.items() if connection in those]:
                watches[path].discard(connection)
                if not watches[path]:
                    del watches[path]

    def serve(self, connection: _Connection, payload: bytes) -> None:
        """One frame. Raises FrameError."""
        reader = Reader(payload)
        session = connection.session
        if session is None:
            self._greet(connection, reader)
            return
        self._renew(session)
        xid, ask = reader.int32(), reader.int32()
        if ask == Ask.CLOSE:
            self._end(session.session_id, last=frames.answer(xid, self.tree.zxid, 0))
            return
        error, body = 0, b""
        try:
            body = self._answer(connection, ask, reader)
        except MultiError as failed:  # of a single operation
            error = frames.TROUBLE_OF[type(failed.cause)]
        except StoreError as failed:
            error = frames.TROUBLE_OF[type(failed)]
        except NotServedError:
            error = Trouble.UNIMPLEMENTED
        except FrameError:
            raise
        except ValueError:
            error = Trouble.BAD_ARGUMENTS
        connection.send(frames.answer(xid, self.tree.zxid, error, body))

    def _greet(self, connection: _Connection, reader: Reader) -> None:
        hello = reader.hello()
        if hello.session_id == 0:
            self._last_session += 1
            timeout_ms = min(max(hello.timeout_ms, _TIMEOUT_MS[0]), _TIMEOUT_MS[1])
            session = _Session(self._last_session, timeout_ms)
            self._sessions[session.session_id] = session
            self._look_later(session)
        else:
            known = self._sessions.get(hello.session_id)
            if known is None or known.password != hello.password:
                connection.send(frames.welcome(0, 0, bytes(frames.PASSWORD_BYTES)))
                connection.close()
                return
            session = known
            if session.connection is not None:
                session.connection.abort()  # its client has another
        self._renew(session)
        session.connection, connection.session = connection, session
        connection.send(frames.welcome(session.timeout_ms, session.session_id, session.password))

    def _renew(self, session: _Session) -> None:
        session.received_s = self._loop.time()

    def _look_later(self, session: _Session) -> None:
        if session.looked_at is not None:
            session.looked_at.cancel()
        due_s = session.received_s + session.timeout_ms / 1000
        session.looked_at = self._loop.call_at(due_s, self._look, session)

    def _look(self, session: _Session) -> None:
        if self._sessions.get(session.session_id) is not session or self.lost:
            return  # over; or no client is served, and one that comes back is looked at again
        if self._loop.time() < session.received_s + session.timeout_ms / 1000:
            self._look_later(session)
            return
        log.info("session %d of the cluster under test expired", session.session_id)
        self._end(session.session_id)

    def _end(self, session_id: int, last: bytes = b"") -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._tell(self.tree.end(session_id))
        connection = session.connection
        if connection is not None:
            if last:
                connection.send(last)
            connection.close()

    def _tell(self, changes: Changes) -> None:
        """Fire the watches that a transaction concerns, each once, in the order of its changes."""
        for type_, path in changes:
            notified = self._data_watches.pop(path, set())
            if type_ is EventType.DELETED:
                notified |= self._child_watches.pop(path, set())
            for connection in notified:
                connection.send(frames.event(_DATA_EVENTS[type_], path))
            if type_ is not EventType.CHANGED:
                parent = parent_of(path)
                for connection in self._child_watches.pop(parent, set()):
                    connection.send(frames.event(_CHILD_EVENT, parent))

    # --- what is asked ----------------------------------------------------------------------------

    def _answer(self, connection: _Connection, ask: int, reader: Reader) -> bytes:
        """The answer's body. Raises StoreError, ValueError, NotServedError."""
        match ask:
            case Ask.PING:
                return b""
            case Ask.SYNC:
                return frames.text(reader.text())
            case Ask.EXISTS:
                path, watch = reader.text(), reader.flag()
                if watch:
                    self._data_watches.setdefault(path, set()).add(connection)
                return frames.stat(self.tree.node(path))
            case Ask.GET_DATA:
                path, watch = reader.text(), reader.flag()
                node = self.tree.node(path)
                if watch:
                    self._data_watches.setdefault(path, set()).add(connection)
                return frames.data(node.data) + frames.stat(node)
            case Ask.GET_CHILDREN | Ask.GET_CHILDREN_2:
                path, watch = reader.text(), reader.flag()
                node = self.tree.node(path)
                if watch:
                    self._child_watches.setdefault(path, set()).add(connection)
                found = frames.names(sorted(node.children))
                return found + (frames.stat(node) if ask == Ask.GET_CHILDREN_2 else b"")
            case Ask.CREATE | Ask.DELETE | Ask.SET_DATA:
                operation = reader.operation(ask)
                (version,) = self._write(connection, [operation])
                return frames.done(operation, version)
            case Ask.MULTI_READ:
                return frames.parts_read(self.tree.find(path) for path in reader.reads())
            case Ask.MULTI:
                return self._multi(connection, reader.operations())
        raise NotServedError

    def _multi(self, connection: _Connection, operations: list[Operation]) -> bytes:
        try:
            versions = self._write(connection, operations)
        except MultiError as failed:
            code = frames.TROUBLE_OF[type(failed.cause)]
            return frames.parts_failed(len(operations), failed.index, code)
        return frames.parts_done(zip(operations, versions, strict=True))

    def _write(self, connection: _Connection, operations: list[Operation]) -> list[int]:
        for each in operations:
            _check_path(each)
        if connection.session is None:
            raise FrameError("a write without a session")
        versions, changes = self.tree.multi(connection.session.session_id, operations)
        self._tell(changes)
        return versions


def _check_path(operation: Operation) -> None:
    """ValueError for a path that no node may have. How much there may be, a frame's size bounds."""
    path = operation.path
    if path == "/" and not isinstance(operation, Create | Delete):
        return
    if not path.startswith("/") or any(each in ("", ".", "..") for each in path[1:].split("/")):
        raise ValueError(f"bad path {path!r}")


class _Connection(asyncio.Protocol):
    """Bytes from and to one client."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.session: _Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while self._transport is not None and not self._transport.is_closing():
                size = frames.frame_bytes(self._received)
                if not 0 < size <= len(self._received):
                    return
                payload = bytes(self._received[4:size])
                del self._received[:size]
                self._server.serve(self, payload)
        except FrameError as error:
            log.warning("a client of the ZooKeeper under test: %s", error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.disconnected(self)

    def send(self, payload: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _UNREAD_BYTES_MAX:
            transport.abort()
            return
        transport.write(frames.framed(payload))

    def close(self) -> None:
        """Once what was sent has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
