"""What every rung of the ladder does with a request, and how bytes become requests.

The work: check a batch's CRC-32C, give it its offset, write it to the partition's file, answer;
with `fsync` the answer waits for the disk, which is the slow work that tells the designs apart.
Requests: Produce 7, and what the load generator asks around a block: ListOffsets 1, DeleteTopics 1
and ApiVersions 0. A topic exists once it has been written to. Files are unlinked at birth.

`Work.answer` may be called from any thread; appends to one partition take turns. Input is bounded:
a frame, the number of partitions, and a reader that says nothing for `SILENCE_S`. What is malformed
raises WireError, and the server closes that connection.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perf._load import crc32c
from perf.batch import CRC_AT, HEADER_BYTES, LENGTH_AT
from perf.requests import API_VERSIONS, DELETE_TOPICS, LIST_OFFSETS, PRODUCE
from perf.wire import Reader, WireError, Writer, read_exactly

FRAME_BYTES_MAX: Final = 4 << 20
PARTITIONS_MAX: Final = 1024
CONNECTIONS_MAX: Final = 256
RECEIVE_BYTES: Final = 64 << 10
SILENCE_S: Final = 10.0  # in the middle of a frame, where a thread waits for the rest

CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
INVALID_REQUIRED_ACKS: Final = 21

_MAGIC_AT: Final = 16
_SUMMED_FROM: Final = CRC_AT + 4
_LAST_DELTA_AT: Final = 23
_LENGTH_COUNTS_FROM: Final = LENGTH_AT + 4
_EARLIEST: Final = -2
_SERVED: Final = (
    (PRODUCE, 7, 7),
    (LIST_OFFSETS, 1, 1),
    (API_VERSIONS, 0, 0),
    (DELETE_TOPICS, 1, 1),
)


@dataclass
class Partition:
    """One partition: a file that has no name, and the next offset."""

    fd: int
    next_offset: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Work:
    """The partitions of one server, and the answer to each request."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        self._directory = directory
        self._fsync = fsync
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._lock = threading.Lock()  # of the table, not of what is in it

    def answer(self, request: bytes) -> bytes:
        """The whole answer frame to a request frame (without its size). WireError: malformed."""
        r = Reader(request)
        api, version, correlation = r.get("h"), r.get("h"), r.get("i")
        r.string()  # client id
        if (api, version, version) not in _SERVED:
            raise WireError(f"API {api} version {version} is not served")
        w = Writer().put("ii", 0, correlation)
        if api == PRODUCE:
            self._produce(r, w)
        elif api == LIST_OFFSETS:
            self._list_offsets(r, w)
        elif api == DELETE_TOPICS:
            self._delete_topics(r, w)
        else:
            w.put("h", 0).count(len(_SERVED))
            for row in _SERVED:
                w.put("hhh", *row)
        struct.pack_into(">i", w.data, 0, len(w.data) - 4)
        return bytes(w.data)

    # The requests.

    def _produce(self, r: Reader, w: Writer) -> None:
        r.string()  # transactional id
        acks = r.get("h")
        r.get("i")  # timeout
        topics = r.count()
        w.count(topics)
        for _ in range(topics):
            topic = r.string()
            partitions = r.count()
            w.string(topic).count(partitions)
            for _ in range(partitions):
                index = r.get("i")
                records = r.take(max(0, r.get("i")))
                # acks=0 has no answer, and a lesson in answering has no use for it.
                code, offset = (
                    self._append(topic, index, records) if acks else (INVALID_REQUIRED_ACKS, -1)
                )
                w.put("ihqqq", index, code, offset, -1, 0)
        w.put("i", 0)  # throttle time

    def _append(self, topic: str, index: int, batch: bytes) -> tuple[int, int]:
        """Error code and offset of one batch."""
        if len(batch) < HEADER_BYTES or batch[_MAGIC_AT] != 2:
            return CORRUPT_MESSAGE, -1
        length, crc = (struct.unpack_from(">I", batch, at)[0] for at in (LENGTH_AT, CRC_AT))
        if length != len(batch) - _LENGTH_COUNTS_FROM or crc != crc32c(batch[_SUMMED_FROM:]):
            return CORRUPT_MESSAGE, -1
        records = struct.unpack_from(">i", batch, _LAST_DELTA_AT)[0] + 1
        partition = self._partition(topic, index)
        if partition is None or records < 1:
            return UNKNOWN_TOPIC_OR_PARTITION if partition is None else CORRUPT_MESSAGE, -1
        with partition.lock:
            offset = partition.next_offset
            os.writev(partition.fd, (struct.pack(">q", offset), memoryview(batch)[8:]))
            if self._fsync:
                os.fdatasync(partition.fd)  # lets go of the interpreter, as every wait does
            partition.next_offset += records
        return 0, offset

    def _partition(self, topic: str, index: int) -> Partition | None:
        key = (topic, index)
        found = self._partitions.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._partitions and len(self._partitions) < PARTITIONS_MAX:
                fd, path = tempfile.mkstemp(dir=self._directory, prefix="ladder-")
                os.unlink(path)
                self._partitions[key] = Partition(fd)
            return self._partitions.get(key)

    def _list_offsets(self, r: Reader, w: Writer) -> None:
        r.get("i")  # replica id
        topics = r.count()
        w.count(topics)
        for _ in range(topics):
            topic = r.string()
            partitions = r.count()
            w.string(topic).count(partitions)
            for _ in range(partitions):
                index, at = r.get("i"), r.get("q")
                known = self._partitions.get((topic, index))
                end = known.next_offset if known is not None and at != _EARLIEST else 0
                w.put("ihqq", index, 0, -1, end)

    def _delete_topics(self, r: Reader, w: Writer) -> None:
        names = [r.string() for _ in range(r.count())]
        with self._lock:
            for key in [key for key in self._partitions if key[0] in names]:
                partition = self._partitions.pop(key)
                with partition.lock:
                    os.close(partition.fd)
        w.put("i", 0).count(len(names))
        for name in names:
            w.string(name).put("h", 0)


# From bytes to requests: for who may wait, and for who may not.


def _checked(size: int) -> int:
    if not 8 <= size <= FRAME_BYTES_MAX:
        raise WireError(f"a frame of {size} bytes")
    return size


def read_request(connection: socket.socket) -> bytes:
    """The next request, waiting for all of it. WireError at the end, OSError after `SILENCE_S`."""
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return read_exactly(connection, _checked(size))


class Inbox:
    """What has come of a connection: bytes go in as they come, whole requests go out."""

    def __init__(self) -> None:
        self._data = bytearray()

    def put(self, data: bytes) -> None:
        self._data += data

    def take(self) -> bytes | None:
        """The request at the front, if all of it is here."""
        if len(self._data) < 4:
            return None
        end = 4 + _checked(struct.unpack_from(">i", self._data)[0])
        if len(self._data) < end:
            return None
        request = bytes(self._data[4:end])
        del self._data[:end]
        return request


def accept(listener: socket.socket, already: int = 0) -> socket.socket | None:
    """A connection that answers at once (no Nagle) and is not waited for forever; None, and it is
    closed, where there are `CONNECTIONS_MAX` already."""
    connection, _ = listener.accept()
    if already >= CONNECTIONS_MAX:
        connection.close()
        return None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(SILENCE_S)
    return connection
