"""The fuzzer's connections: many frames in a write, answers matched in order, closes survived.

One `Talker` is one process (or one thread of a test). It keeps a few connections, each with its
frames that were sent and not answered yet. Frames that are likely to end a connection travel in
small groups; those after one that did are sent again on the next connection. A group ends with a
sentinel, a Produce of nothing: its answer says that everything before it was dealt with, and that a
frame without an answer is a Produce without acks.

Bounds: the connections, a window each, so many new connections a second. A connection that makes no
progress is given up after WAIT_S if a Fetch is on it, or a member's join, which may have to wait
for weeks; without one that is a hang, and a failure.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kbroker.types import ApiKey
from tests.fuzz.answers import Tally
from tests.fuzz.corpus import FETCH, PRODUCE
from tests.fuzz.mutate import BLOCK, CALM, LAST, ROUGH, Frame, framed
from tests.fuzz.way import Way

WINDOWS: Final = {CALM: 96, ROUGH: 12, LAST: 3}
CONNECTIONS: Final = (CALM,) * 4 + (ROUGH,) * 9 + (LAST,) * 3
WAIT_S: Final = 1.0
MAY_WAIT: Final = frozenset({FETCH, int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)})
HANG_S: Final = 30.0
CONNECTS_PER_S_MAX: Final = 2_000
QUEUED_MAX: Final = 6 * BLOCK
_RECEIVE_BYTES: Final = 1 << 18
_TICK_S: Final = 0.1
_INT32: Final = struct.Struct(">i")
SENTINEL_ID: Final = _INT32.pack(0x5E7713AB)
SENTINEL: Final = framed(
    struct.pack(">hh", PRODUCE, 3) + SENTINEL_ID + struct.pack(">hhhii", -1, -1, 1, 1000, 0)
)

# A socket that speaks TLS raises other errors where a call would block.
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
Entry = tuple[int, bytes]  # the number of a frame, and the frame; the sentinel's is -1


class Connection:
    """One socket, what was sent on it, and what has come of an answer."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.socket: socket.socket | None = None
        self.pending: deque[Entry] = deque()
        self.out: deque[memoryview] = deque()
        self.shut_behind = False
        self.received = bytearray()
        self.since = 0.0


class Talker:
    def __init__(
        self,
        address: tuple[str, int],
        tally: Tally,
        blocks: Iterator[list[Frame]],
        *,
        first_number: Callable[[int], int],
        rate: float = 0,
        connections: tuple[int, ...] = CONNECTIONS,
        way: Way | None = None,
    ) -> None:
        self._address = address
        self._way = way or Way()
        self.tally = tally
        self._blocks = blocks
        self._block_at = 0
        self._first_number = first_number
        self._rate = rate
        self._queues: dict[int, deque[Entry]] = {kind: deque() for kind in (CALM, ROUGH, LAST)}
        self._connections = [Connection(kind) for kind in connections]
        self._poll = select.epoll()
        self._by_fd: dict[int, Connection] = {}
        self._exhausted = False
        self._connects = (0, 0)  # the second, and how many in it
        self._sent = 0

    # --- the loop --------------------------------------------------------------------------------

    def run(self, each_second: Callable[[Tally], None], until: float = float("inf")) -> None:
        """Until all frames are answered, or the time is over."""
        started = ticked = reported = time.monotonic()
        while True:
            now = time.monotonic()
            over = now > until
            self._make_frames(over)
            allowed = (now - started) * self._rate if self._rate else float("inf")
            if not over and self._sent < allowed:
                for connection in self._connections:
                    if not connection.pending:
                        self._fill(connection, now)
            for fd, events in self._poll.poll(0.002):
                self._event(self._by_fd[fd], events, now)
            if now - ticked > _TICK_S:
                ticked = now
                self._look_for_stalls(now)
            if now - reported > 1:
                reported = now
                each_second(self.tally)
            ends = over or (self._exhausted and not any(self._queues.values()))
            if ends and not any(c.pending for c in self._connections):
                break
        for connection in self._connections:
            self._drop(connection)
        self._poll.close()

    def _make_frames(self, over: bool) -> None:
        queued = sum(map(len, self._queues.values()))
        while not over and not self._exhausted and queued < QUEUED_MAX:
            if min(len(self._queues[CALM]), len(self._queues[ROUGH])) > BLOCK:
                return
            block = next(self._blocks, None)
            if block is None:
                self._exhausted = True
                return
            first = self._first_number(self._block_at)
            self._block_at += 1
            for at, (kind, frame) in enumerate(block):
                self._queues[kind].append((first + at, frame))
            queued += len(block)

    def _fill(self, connection: Connection, now: float) -> None:
        queue = self._queues[connection.kind]
        if not queue or (connection.socket is None and not self._connect(connection, now)):
            return
        if connection.kind == LAST:
            calm = self._queues[CALM]
            group = [calm.popleft() for _ in range(min(WINDOWS[LAST] - 1, len(calm)))]
            group.append(queue.popleft())
            connection.shut_behind = True
        else:
            group = [queue.popleft() for _ in range(min(WINDOWS[connection.kind], len(queue)))]
            group.append((-1, SENTINEL))
        connection.pending.extend(group)
        connection.since = now
        self._sent += len(group) - (group[-1][0] < 0)
        data = b"".join([frame for _, frame in group])
        connection.out.extend(_pieces(data, group[0][0]))
        self._send(connection)

    # --- sockets ---------------------------------------------------------------------------------

    def _connect(self, connection: Connection, now: float) -> bool:
        second, count = self._connects
        if second == int(now) and count >= CONNECTS_PER_S_MAX:
            return False
        self._connects = (int(now), count + 1 if second == int(now) else 1)
        try:
            opened = self._way.connect(self._address, HANG_S)
        except OSError:
            if not self._way.stranger:
                raise
            return False  # of those that are not let in there is a bound
        opened.setblocking(False)
        connection.socket = opened
        self._by_fd[opened.fileno()] = connection
        self._poll.register(opened.fileno(), select.EPOLLIN)
        self.tally.connects += 1
        return True

    def _drop(self, connection: Connection) -> None:
        if connection.socket is not None:
            self._poll.unregister(connection.socket.fileno())
            del self._by_fd[connection.socket.fileno()]
            connection.socket.close()
        connection.socket = None
        connection.shut_behind = False
        connection.out.clear()
        connection.received.clear()

    def _event(self, connection: Connection, events: int, now: float) -> None:
        if events & ~select.EPOLLOUT and not self._receive(connection, now):
            return
        if events & select.EPOLLOUT:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        """One piece a turn, so that pieces arrive as pieces."""
        assert connection.socket is not None
        try:
            if connection.out:
                sent = connection.socket.send(connection.out[0])
                if sent < len(connection.out[0]):
                    connection.out[0] = connection.out[0][sent:]
                else:
                    connection.out.popleft()
            if not connection.out and connection.shut_behind:
                connection.shut_behind = False
                # Of the socket below TLS, too: that one would take its answers for plain text.
                socket.socket.shutdown(connection.socket, socket.SHUT_WR)
        except _WOULD_BLOCK:
            pass
        except OSError:  # the reading side will say so, after the answers that have come
            connection.out.clear()
        wanted = select.EPOLLIN | (select.EPOLLOUT if connection.out else 0)
        self._poll.modify(connection.socket.fileno(), wanted)

    def _receive(self, connection: Connection, now: float) -> bool:
        assert connection.socket is not None
        try:
            data = connection.socket.recv(_RECEIVE_BYTES)
        except _WOULD_BLOCK:
            return True
        except OSError:
            data = b""
        if data:
            connection.since = now
            connection.received += data
            self._answers(connection)
            return True
        self._ended(connection)
        return False

    # --- answers ---------------------------------------------------------------------------------

    def _answers(self, connection: Connection) -> None:
        received, at = connection.received, 0
        while len(received) - at >= 4:
            (size,) = _INT32.unpack_from(received, at)
            if size < 4:
                self.tally.fail(f"an answer of {size} bytes: {connection.pending[0]!r}")
                break
            if len(received) - at < 4 + size:
                break
            self._answered(connection, bytes(received[at + 4 : at + 4 + size]))
            at += 4 + size
        del received[:at]

    def _answered(self, connection: Connection, payload: bytes) -> None:
        pending, tally = connection.pending, self.tally
        correlation = payload[:4]
        while pending:
            number, frame = pending[0]
            if connection.kind == LAST and len(pending) == 1:
                tally.broken["answered"] += 1  # to whatever it was taken for
                return
            pending.popleft()
            if number < 0:
                if correlation != SENTINEL_ID:
                    tally.fail(f"an answer to nothing that was sent: {payload[:32]!r}")
                return
            tally.frames += 1
            if frame[8:12] == correlation:
                tally.answer(number, frame, payload)
                return
            tally.silent += 1
            if frame[4:6] != b"\0\0":
                tally.fail(f"frame {number} was passed over: {frame[:64]!r}")
        tally.fail(f"an answer too many: {payload[:32]!r}")

    def _ended(self, connection: Connection) -> None:
        """The broker has closed: the first without an answer is the cause, the rest goes again."""
        pending, tally = connection.pending, self.tally
        if pending:
            number, frame = pending.popleft()
            tally.frames += number >= 0
            if connection.kind == LAST and not pending:
                tally.broken["ended"] += 1
            elif number < 0 and not self._way.stranger:
                tally.fail("a connection ended after the answer to its last frame")
            elif number >= 0:
                tally.closes[_key(frame)] += 1
        self._again(connection)

    def _again(self, connection: Connection) -> None:
        rest = [entry for entry in connection.pending if entry[0] >= 0]
        connection.pending.clear()
        if connection.kind == LAST and rest:
            self._queues[LAST].appendleft(rest.pop())
            self._queues[CALM].extendleft(reversed(rest))
        else:
            self._queues[connection.kind].extendleft(reversed(rest))
        self._drop(connection)

    def _look_for_stalls(self, now: float) -> None:
        for connection in self._connections:
            if not connection.pending or now - connection.since < WAIT_S:
                continue
            keys = [_key(frame) for _, frame in connection.pending]
            # Broken framing may have made one, or wait for bytes that never come.
            waiting = next((at for at, key in enumerate(keys) if key in MAY_WAIT), None)
            if waiting is not None:
                for _ in range(waiting + 1):
                    number, _frame = connection.pending.popleft()
                    self.tally.frames += number >= 0
                    self.tally.silent += 1
                self.tally.silent -= 1
                self.tally.waited += 1
                self._again(connection)
            elif now - connection.since > HANG_S:
                number, frame = connection.pending.popleft()
                self.tally.frames += number >= 0
                self.tally.fail(f"no answer for {HANG_S} s: frame {number} {frame[:64]!r}")
                self._again(connection)


def _key(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big", signed=True)


def _pieces(data: bytes, number: int) -> Iterator[memoryview]:
    """Mostly whole; one write in 40 in some pieces, one in 400 byte by byte for a while."""
    whole = memoryview(data)
    mark = number // 7
    if mark % 40 != 0:
        yield whole
        return
    step, begin = (1, 0) if mark % 400 == 0 else (1 + mark % 997, 0)
    while begin < len(whole) and begin < 200 * step:
        yield whole[begin : begin + step]
        begin += step
    if begin < len(whole):
        yield whole[begin:]
