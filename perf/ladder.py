"""The ladder: four ways to build a server, as four small servers that can be read and measured.

Each rung repairs what is wrong with the one below it, and the last is the shape of Apache Kafka and
of kbroker; docs/ladder.md says what is wrong with each. All do the same work: check a batch's
CRC-32C, give it its offset, write it to the partition's file, answer; with `--fsync` the answer
waits for the disk, which is the slow work that tells the designs apart. They serve what the load
generator needs: Produce 7, ListOffsets 1 and ApiVersions 0. They are a lesson, not brokers: nothing
is kept, and Python's interpreter lock is part of their cost. Input is bounded, and a request
that is malformed ends its connection.

One rung as a process: `python -m perf.ladder DESIGN PORT DIRECTORY`; SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import select
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perf._load import crc32c
from perf.batch import CRC_AT, HEADER_BYTES, LENGTH_AT
from perf.requests import API_VERSIONS, LIST_OFFSETS, PRODUCE
from perf.wire import Reader, WireError, Writer, read_exactly

TITLES: Final = {
    "loop": "one loop",
    "threads": "a thread for each request",
    "selector": "one selector",
    "pool": "one selector and a pool of handlers",
    "selectors": "many selectors and a pool of handlers",
}
PROCESSORS: Final = 3  # num.network.threads
HANDLERS: Final = 8  # num.io.threads
REQUESTS_MAX: Final = 500  # queued.max.requests
NEW_CONNECTIONS_MAX: Final = 20  # of one Processor
CONNECTIONS_MAX: Final = 256
PARTITIONS_MAX: Final = 1024
FRAME_BYTES_MAX: Final = 4 << 20
RECEIVE_BYTES: Final = 64 << 10
BACKLOG: Final = 1024
SILENCE_S: Final = 10.0  # in the middle of a request, where a thread waits for the rest
SWITCH_INTERVAL_S: Final = 0.0005  # kbroker's: a thread waits this long for the interpreter at most
CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUIRED_ACKS = 2, 3, 21

_MAGIC_AT: Final = 16
_LAST_DELTA_AT: Final = 23
_SERVED: Final = {PRODUCE: 7, LIST_OFFSETS: 1, API_VERSIONS: 0}


@dataclass
class Partition:
    """One partition: a file that has no name, and the next offset."""

    fd: int
    next_offset: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Work:
    """The partitions of one server, and the response to each request. From any thread."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        self._directory = directory
        self._fsync = fsync
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._lock = threading.Lock()  # of the table, not of its partitions

    def answer(self, request: bytes) -> bytes:
        """The response frame to a request frame (without its size). WireError: malformed."""
        r = Reader(request)
        api, version, correlation = r.get("h"), r.get("h"), r.get("i")
        r.string()  # client id
        if _SERVED.get(api) != version:
            raise WireError(f"API {api} version {version} is not served")
        w = Writer().put("ii", 0, correlation)
        if api == PRODUCE:
            self._produce(r, w)
        elif api == LIST_OFFSETS:
            r.get("i")  # replica id
            _for_each_partition(r, w, "hqq", self._offset)
        else:
            w.put("h", 0).count(len(_SERVED))
            for key, only in _SERVED.items():
                w.put("hhh", key, only, only)
        struct.pack_into(">i", w.data, 0, len(w.data) - 4)
        return bytes(w.data)

    def _produce(self, r: Reader, w: Writer) -> None:
        r.string()  # transactional id
        acks, _timeout_ms = r.get("h"), r.get("i")

        def append(r: Reader, topic: str, index: int) -> tuple[int, ...]:
            records = r.take(max(0, r.get("i")))
            # acks=0 has no response, and a lesson in responses has no use for it.
            written = self._append(topic, index, records) if acks else (INVALID_REQUIRED_ACKS, -1)
            return (*written, -1, 0)

        _for_each_partition(r, w, "hqqq", append)
        w.put("i", 0)  # throttle time

    def _append(self, topic: str, index: int, batch: bytes) -> tuple[int, int]:
        """Error code and offset of one batch."""
        if len(batch) < HEADER_BYTES or batch[_MAGIC_AT] != 2:
            return CORRUPT_MESSAGE, -1
        length, crc = (struct.unpack_from(">I", batch, at)[0] for at in (LENGTH_AT, CRC_AT))
        records = struct.unpack_from(">i", batch, _LAST_DELTA_AT)[0] + 1
        whole = length == len(batch) - LENGTH_AT - 4 and crc == crc32c(batch[CRC_AT + 4 :])
        if not whole or records < 1:
            return CORRUPT_MESSAGE, -1
        partition = self._partition(topic, index)
        if partition is None:
            return UNKNOWN_TOPIC_OR_PARTITION, -1
        with partition.lock:
            offset = partition.next_offset
            os.writev(partition.fd, (struct.pack(">q", offset), memoryview(batch)[8:]))
            if self._fsync:
                os.fdatasync(partition.fd)  # releases the interpreter, as every wait does
            partition.next_offset += records
        return 0, offset

    def _partition(self, topic: str, index: int) -> Partition | None:
        """A topic exists once it is written to."""
        key = (topic, index)
        if (found := self._partitions.get(key)) is not None:
            return found
        with self._lock:
            if key not in self._partitions and len(self._partitions) < PARTITIONS_MAX:
                fd, path = tempfile.mkstemp(dir=self._directory, prefix="ladder-")
                os.unlink(path)
                self._partitions[key] = Partition(fd)
            return self._partitions.get(key)

    def _offset(self, r: Reader, topic: str, index: int) -> tuple[int, ...]:
        r.get("q")  # a timestamp; the latest offset is the only one that is known
        known = self._partitions.get((topic, index))
        return 0, -1, 0 if known is None else known.next_offset


def _for_each_partition(
    r: Reader, w: Writer, layout: str, answer: Callable[[Reader, str, int], tuple[int, ...]]
) -> None:
    """Read topics and their partitions, and write each partition's response in the same order."""
    topics = r.count()
    w.count(topics)
    for _ in range(topics):
        topic, partitions = r.string(), r.count()
        w.string(topic).count(partitions)
        for _ in range(partitions):
            index = r.get("i")
            w.put("i" + layout, index, *answer(r, topic, index))


def _checked(size: int) -> int:
    if not 8 <= size <= FRAME_BYTES_MAX:
        raise WireError(f"a frame of {size} bytes")
    return size


def take(inbox: bytearray) -> bytes | None:
    """Remove the request at the front, if all of it has been received."""
    if len(inbox) < 4:
        return None
    end = 4 + _checked(struct.unpack_from(">i", inbox)[0])
    if len(inbox) < end:
        return None
    request = bytes(inbox[4:end])
    del inbox[:end]
    return request


class Connection:
    """A socket, the bytes that await an answer, and the answers that have not been sent."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.fd = connected.fileno()
        self.inbox = bytearray()
        self.outbox = bytearray()

    def serve_one(self, work: Work) -> bool:
        """Read one request, do it, answer it; each step waits. False at the connection's end."""
        try:
            (size,) = struct.unpack(">i", read_exactly(self.socket, 4))
            self.socket.sendall(work.answer(read_exactly(self.socket, _checked(size))))
            return True
        except (OSError, WireError):
            return False

    def receive(self) -> None:
        """Take what has arrived, without waiting. WireError at the connection's end."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise WireError("the client closed the connection")
        self.inbox += data

    def send(self) -> bool:
        """Send what the socket takes, without waiting. True if nothing is left."""
        while self.outbox:
            try:
                del self.outbox[: self.socket.send(self.outbox)]
            except BlockingIOError:
                return False
        return True


class OneLoop:
    """Rung 1: take a request, do the work, answer, take the next. Everything in it waits; epoll is
    asked only which connection has a request, for Kafka's clients keep theirs."""

    timeout_s = SILENCE_S
    wanted = select.EPOLLIN

    def __init__(self, work: Work, connections_max: int = CONNECTIONS_MAX) -> None:
        self.work = work
        self.connections: dict[int, Connection] = {}
        self.selector = select.epoll()
        self._connections_max = connections_max

    def serve(self, listener: socket.socket) -> None:
        self.selector.register(listener, select.EPOLLIN)
        while True:
            for fd, events in self.selector.poll():
                if fd == listener.fileno():
                    self.add(listener.accept()[0])
                else:
                    self.turn(self.connections[fd], events)

    def add(self, accepted: socket.socket) -> None:
        if len(self.connections) >= self._connections_max:
            accepted.close()
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.settimeout(self.timeout_s)
        self.connections[accepted.fileno()] = Connection(accepted)
        self.selector.register(accepted, self.wanted)

    def turn(self, connection: Connection, events: int) -> None:
        if not connection.serve_one(self.work):
            self.close(connection)

    def close(self, connection: Connection) -> None:
        del self.connections[connection.fd]  # before close: the number may be used again after it
        connection.socket.close()  # which removes it from epoll, too


class ThreadPerRequest(OneLoop):
    """Rung 2: what rung 1 did in its loop, on a thread for each request. A connection is looked at
    once and again when its answer has been sent, so answers keep their order."""

    wanted = select.EPOLLIN | select.EPOLLONESHOT

    def turn(self, connection: Connection, events: int) -> None:
        threading.Thread(target=self._one_request, args=(connection,), daemon=True).start()

    def _one_request(self, connection: Connection) -> None:
        if connection.serve_one(self.work):
            self.selector.modify(connection.fd, self.wanted)
        else:
            self.close(connection)


class OneSelector(OneLoop):
    """Rung 3, the Reactor: only `poll` waits; the work is done on the same thread. A client whose
    answers do not leave is not read. Requests of one read are answered in one send."""

    timeout_s = 0.0

    def turn(self, connection: Connection, events: int) -> None:
        try:
            if events & ~select.EPOLLOUT:
                connection.receive()
            self.move(connection)
        except (OSError, WireError):
            self.close(connection)

    def move(self, connection: Connection) -> None:
        while (request := take(connection.inbox)) is not None:
            connection.outbox += self.work.answer(request)
        sent = connection.send()
        self.selector.modify(connection.fd, select.EPOLLIN if sent else select.EPOLLOUT)


class Processor(OneSelector):
    """One selector of rung 4, which only moves bytes. Other threads reach it through two queues and
    an eventfd. A connection is muted from its request to its answer, which keeps the order."""

    def __init__(self, work: Work, requests: queue.Queue[Request], connections_max: int) -> None:
        super().__init__(work, connections_max)
        self.new_connections: queue.Queue[socket.socket] = queue.Queue(NEW_CONNECTIONS_MAX)
        # Bounded by the connections: each has one response in it at most.
        self.responses: queue.SimpleQueue[tuple[Connection, bytes | None]] = queue.SimpleQueue()
        self._requests = requests
        self._muted: set[Connection] = set()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.selector.register(self._wake_fd, select.EPOLLIN)

    def wake_up(self) -> None:
        """After something was put in a queue. From any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def run(self) -> None:
        while True:
            for fd, events in self.selector.poll():
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                    self._take_from_queues()
                    continue
                connection = self.connections.get(fd)  # None: closed in this very turn
                if connection is not None and connection not in self._muted:
                    self.turn(connection, events)

    def _take_from_queues(self) -> None:
        while not self.new_connections.empty():
            self.add(self.new_connections.get())
        while not self.responses.empty():
            connection, answer = self.responses.get()
            self._muted.remove(connection)
            if answer is None:
                self.close(connection)
                continue
            connection.outbox += answer
            self.turn(connection, select.EPOLLOUT)

    def move(self, connection: Connection) -> None:
        if not connection.send():
            self.selector.modify(connection.fd, select.EPOLLOUT)
        elif (data := take(connection.inbox)) is None:
            self.selector.modify(connection.fd, select.EPOLLIN)
        else:
            self._muted.add(connection)
            self.selector.modify(connection.fd, select.EPOLLONESHOT)  # with no event asked for
            self._requests.put((data, connection, self))


Request = tuple[bytes, Connection, Processor]


class ManySelectors:
    """Rung 4: an acceptor, Processors with a selector each, one bounded request queue, a pool of
    handlers. With one Processor this is one selector and a pool."""

    def __init__(self, work: Work, processors: int = PROCESSORS) -> None:
        self._work = work
        self._requests: queue.Queue[Request] = queue.Queue(REQUESTS_MAX)
        self._processors = [
            Processor(work, self._requests, CONNECTIONS_MAX // processors)
            for _ in range(processors)
        ]

    def serve(self, listener: socket.socket) -> None:
        """The calling thread is the acceptor: it gives connections to the Processors in turn."""
        for run in (*(one.run for one in self._processors), *[self._handle] * HANDLERS):
            threading.Thread(target=run, daemon=True).start()
        for processor in itertools.cycle(self._processors):
            processor.new_connections.put(listener.accept()[0])
            processor.wake_up()

    def _handle(self) -> None:
        """The life of a handler."""
        while True:
            data, connection, processor = self._requests.get()
            answer: bytes | None
            try:
                answer = self._work.answer(data)
            except (OSError, WireError):
                answer = None  # which ends the connection
            processor.responses.put((connection, answer))
            processor.wake_up()


def serve(design: str, listener: socket.socket, work: Work) -> None:
    """Until the process is ended."""
    if design in ("pool", "selectors"):
        ManySelectors(work, 1 if design == "pool" else PROCESSORS).serve(listener)
        return
    one_thread = {"loop": OneLoop, "threads": ThreadPerRequest, "selector": OneSelector}
    one_thread[design](work).serve(listener)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.ladder", description=__doc__)
    parser.add_argument("design", choices=tuple(TITLES))
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fsync", action="store_true", help="answer when it is on the disk")
    given = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = socket.create_server(("127.0.0.1", given.port), backlog=BACKLOG)
    serve(given.design, listener, Work(given.directory, fsync=given.fsync))


if __name__ == "__main__":
    main()
