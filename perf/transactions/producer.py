"""A transactional producer that does what a client library does, and nothing more.

    for TV1: AddPartitionsToTxn 3, Produce 11, EndTxn 4; the epoch stays, sequences go on
    for TV2: Produce 12, which adds its partitions, EndTxn 5; each outcome has the next epoch

`Producer` makes requests and reads responses: `transaction` is a generator that yields a frame and
is sent the response to it, so that one thread may drive many. CONCURRENT_TRANSACTIONS and
NOT_ENOUGH_REPLICAS are repeated at once; any other error is a ClientError.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from perf._load import crc32c
from perf.batch import ATTRIBUTES_AT, CRC_AT, encode, payload
from perf.client import READY_RETRY_S, READY_WAIT_S, Client, ClientError
from perf.requests import INIT_PRODUCER_ID, PRODUCE, TIMEOUT_MS, Topic
from perf.wire import FLEXIBLE_SINCE, Reader, Writer, frame, request_header

ADD_PARTITIONS, END_TXN, FIND_COORDINATOR = 24, 26, 10
INIT_VERSION, ADD_VERSION = 4, 3
TRANSACTION_TIMEOUT_MS: Final = 600_000
TRANSACTIONAL: Final = 0x10
CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS = 51, 19
NOT_YET: Final = (14, 15, 16, CONCURRENT_TRANSACTIONS)
# Of a partition in a response without errors: it is passed over as a whole, since what reads it
# shares the machine with the broker.
PRODUCED_BYTES, ADDED_BYTES = 4 + 2 + 24 + 1 + 1 + 1, 4 + 2 + 1
PRODUCER_AT: Final = 43  # of a batch: producer id, epoch, base sequence


class Kind(NamedTuple):
    """How a client library speaks."""

    name: str
    adds: bool
    produce_version: int
    end_version: int


TV1: Final = Kind("tv1", True, 11, 4)
TV2: Final = Kind("tv2", False, 12, 5)
PLAIN: Final = Kind("none", False, 12, -1)  # idempotent, without transactions
KINDS: Final = {kind.name: kind for kind in (TV1, TV2, PLAIN)}

Steps = Generator[bytes, Reader, None]


class Producer:
    """One transactional id, or one idempotent producer. Not for threads."""

    def __init__(
        self, client: Client, name: str, kind: Kind, topic: Topic, values: Sequence[bytes]
    ) -> None:
        """`values`: of each batch, one for each of the topic's partitions."""
        self._kind, self._name, self._topic = kind, name, topic
        self.producer_id, self.epoch = self._begin(client)
        self._sequence = 0
        self._records = len(values)
        self.repeats = 0  # requests that were sent again
        made = encode(list(values), timestamp_ms=time.time_ns() // 1_000_000, producer_id=1)
        self.batch_bytes = len(made.data)
        self._batch = bytearray(made.data)
        self._frame, self._batches_at = self._produce_frame(made.data)
        self._add_frame = b""
        self._end_frames = {True: b"", False: b""}  # by whether it is committed
        self._renew()

    # --- requests

    def _begin(self, client: Client) -> tuple[int, int]:
        if self._kind is PLAIN:
            return client.init_producer_id()
        w = Writer(flexible=True).string(self._name).put("iqh", TRANSACTION_TIMEOUT_MS, -1, -1)
        body = bytes(w.tags().data)
        give_up = time.monotonic() + READY_WAIT_S
        while True:
            r = client.ask(INIT_PRODUCER_ID, INIT_VERSION, body)
            r.get("i")
            code, producer_id, epoch = r.get("h"), r.get("q"), r.get("h")
            if not code:
                return producer_id, epoch
            if code not in NOT_YET or time.monotonic() > give_up:
                raise ClientError("InitProducerId", code)
            time.sleep(READY_RETRY_S)

    def _produce_frame(self, batch: bytes) -> tuple[bytearray, list[int]]:
        version = self._kind.produce_version
        header = request_header(PRODUCE, version)
        w = Writer(flexible=True)
        w.string(None if self._kind is PLAIN else self._name).put("hi", -1, TIMEOUT_MS)
        w.count(1).string(self._topic.name).count(self._topic.partitions)
        places = []
        for index in range(self._topic.partitions):
            w.put("i", index).bytes(batch).tags()
            places.append(len(header) + len(w.data) - len(batch) - 1)
        w.tags().tags()
        return bytearray(frame(header, bytes(w.data))), places

    def _renew(self) -> None:
        """Requests with the current pair."""
        if self._kind is PLAIN:
            return
        pair = (self.producer_id, self.epoch)
        header = request_header(END_TXN, self._kind.end_version)
        for committed in self._end_frames:
            end = Writer(flexible=True).string(self._name).put("qh?", *pair, committed).tags()
            self._end_frames[committed] = frame(header, bytes(end.data))
        if self._kind.adds:
            add = Writer(flexible=True).string(self._name).put("qh", *pair)
            add.count(1).string(self._topic.name).count(self._topic.partitions)
            add.put(f"{self._topic.partitions}i", *range(self._topic.partitions)).tags().tags()
            header = request_header(ADD_PARTITIONS, ADD_VERSION)
            self._add_frame = frame(header, bytes(add.data))

    def batch(self) -> bytes:
        """The next Produce request: a batch for each partition, with the next sequence."""
        attributes = 0 if self._kind is PLAIN else TRANSACTIONAL
        batch = self._batch
        struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes)
        struct.pack_into(">qhi", batch, PRODUCER_AT, self.producer_id, self.epoch, self._sequence)
        struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
        data = self._frame
        for at in self._batches_at:  # one is like the other
            data[at : at + self.batch_bytes] = batch
        self._sequence = (self._sequence + self._records) & 0x7FFFFFFF
        return bytes(data)

    # --- responses

    def produced(self, r: Reader) -> int:
        """The error of a Produce response; 0 for none."""
        first = 0
        for _ in range(r.count()):
            r.string()
            count = r.count()
            if _without_errors(r, count, PRODUCED_BYTES):
                r.tags()
                continue
            for _ in range(count):
                r.get("i")
                code = r.get("h")
                first = first or code
                r.take(24)
                r.count()  # errors of records: none
                r.string()
                r.tags()
            r.tags()
        return first

    def begun(self) -> Steps:
        """Until the partitions are in the transaction; nothing where Produce adds them."""
        while self._kind.adds:
            r = yield self._add_frame
            r.get("i")
            first = 0
            for _ in range(r.count()):
                r.string()
                count = r.count()
                if not _without_errors(r, count, ADDED_BYTES):
                    for _ in range(count):
                        r.get("i")
                        code = r.get("h")
                        first = first or code
                        r.tags()
                r.tags()
            if not first:
                return
            self._repeat("AddPartitionsToTxn", first)

    def ended(self, *, committed: bool = True) -> Steps:
        while True:
            r = yield self._end_frames[committed]
            r.get("i")
            code = r.get("h")
            if not code:
                break
            self._repeat("EndTxn", code)
        if not self._kind.adds:
            self.producer_id, self.epoch = r.get("q"), r.get("h")
            self._sequence = 0
            self._renew()

    def written(self) -> Steps:
        data = self.batch()
        while True:
            r = yield data
            code = self.produced(r)
            if not code:
                return
            self._repeat("Produce", code)

    def transaction(self) -> Steps:
        """One batch in each partition, committed."""
        yield from self.begun()
        yield from self.written()
        yield from self.ended()

    def _repeat(self, what: str, code: int) -> None:
        if code not in (CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS):
            raise ClientError(what, code)
        self.repeats += 1


def _without_errors(r: Reader, count: int, size: int) -> bool:
    """Whether so many partitions of that size follow, each without an error; they are taken."""
    found = r.data[r.at : r.at + count * size]
    if len(found) < count * size or any(found[4::size]) or any(found[5::size]):
        return False
    r.take(count * size)
    return True


def values(count: int, record_bytes: int) -> list[bytes]:
    data = payload(count * record_bytes)
    return [data[at : at + record_bytes] for at in range(0, len(data), record_bytes)]


def response(api_frame: bytes, data: bytes) -> Reader:
    """A response to this request, from after its correlation id."""
    api_key, version = struct.unpack_from(">hh", api_frame, 4)
    reader = Reader(data, version >= FLEXIBLE_SINCE[api_key])
    reader.get("i")
    reader.tags()
    return reader


def await_coordinator(client: Client, name: str) -> None:
    """The first one to ask has the topic of transactions created."""
    w = Writer(flexible=True).put("b", 1).count(1).string(name).tags()
    client.ask(FIND_COORDINATOR, 4, bytes(w.data))
