"""A leader that is played: it answers each fetch of a follower at once, with one batch.

It keeps one session, whose first answer has no records. After that one partition gets a batch with
each answer, so many times as `serve` says; the fetch after the last of them is kept until `serve`
is called again. A round of the follower is the time from an answer to the next fetch.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from perf import batch
from perf.requests import FETCH
from perf.wire import Reader, WireError, Writer, read_exactly

SESSION_ID: Final = 77
API_VERSIONS: Final = 18
FETCH_VERSION: Final = 17
OFFERED: Final = ((FETCH, 4, FETCH_VERSION), (API_VERSIONS, 0, 3), (2, 1, 7))
WAIT_S: Final = 120.0
REPLICA_STATE_TAG: Final = 1


class Leader:
    """One connection after the other; of its own thread, or of its caller's."""

    def __init__(self, batch_bytes: int) -> None:
        body = batch.of_size(batch_bytes, timestamp_ms=time.time_ns() // 1_000_000).data
        self._batch = bytearray(body)
        struct.pack_into(">i", self._batch, 12, 0)  # the leader epoch
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(WAIT_S)
        self._follower: socket.socket | None = None
        self._kept = 0  # the correlation id of a fetch that has no answer yet
        self._end = 0  # of the log that the follower has asked for
        self._partition = 0

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        for each in (self._listening, self._follower):
            if each is not None:
                each.close()

    def begin(self) -> None:
        """The follower connects. Its first fetch is answered without records, the next is kept."""
        self._follower, _ = self._listening.accept()
        self._follower.settimeout(WAIT_S)
        self._follower.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        api_key, version, correlation, _ = self._request()
        if api_key != API_VERSIONS:
            raise WireError(f"API {api_key} before ApiVersions")
        w = Writer(version >= 3).put("h", 0).count(len(OFFERED))
        for offered in OFFERED:
            w.put("hhh", *offered).tags()
        self._answer(correlation, b"", bytes(w.put("i", 0).tags().data))
        asked = self._fetch()
        w = Writer(flexible=True).put("ihi", 0, 0, SESSION_ID).count(len(asked))
        self._topic_id = asked[0][0]
        for topic_id, partitions in asked:
            w.raw(topic_id).count(len(partitions))
            for index, offset in partitions:
                w.raw(self._partition_of(index, offset, b"")).tags()
            w.tags()
        self._end = asked[0][1][0][1]
        self._partition = asked[0][1][0][0]
        self._answer(self._kept, b"\0", bytes(w.tags().data))
        self._fetch()

    def serve(self, rounds: int) -> list[int]:
        """How many nanoseconds each took, until its fetch had come."""
        took_ns = []
        for _ in range(rounds):
            begin_ns = time.perf_counter_ns()
            self._serve_one()
            took_ns.append(time.perf_counter_ns() - begin_ns)
        return took_ns

    def _serve_one(self) -> None:
        struct.pack_into(">q", self._batch, 0, self._end)
        w = Writer(flexible=True).put("ihi", 0, 0, SESSION_ID).count(1)
        w.raw(self._topic_id).count(1)
        w.raw(self._partition_of(self._partition, self._end, bytes(self._batch)))
        self._answer(self._kept, b"\0", bytes(w.tags().tags().tags().data))
        asked = self._fetch()
        self._end += 1
        if asked != [(self._topic_id, [(self._partition, self._end)])]:
            raise WireError(f"asked for {asked}, not for {self._end}")

    @staticmethod
    def _partition_of(index: int, end: int, records: bytes) -> bytes:
        """Up to its tagged fields. All records before its fetch offset are committed."""
        w = Writer(flexible=True).put("ihqqq", index, 0, end, end, 0)
        return bytes(w.uvarint(0).put("i", -1).bytes(records).data)

    # --- frames ---

    def _request(self) -> tuple[int, int, int, Reader]:
        if self._follower is None:
            raise WireError("there is no follower")
        size = int.from_bytes(read_exactly(self._follower, 4), "big")
        reader = Reader(read_exactly(self._follower, size), flexible=True)
        api_key, version, correlation = reader.get("h"), reader.get("h"), reader.get("i")
        reader.take(reader.get("h"))  # the client's id
        if version >= 3:
            reader.tags()
        return api_key, version, correlation, reader

    def _fetch(self) -> list[tuple[bytes, list[tuple[int, int]]]]:
        """What the next fetch names: topic id, and each partition with its offset."""
        api_key, version, self._kept, reader = self._request()
        if (api_key, version) != (FETCH, FETCH_VERSION):
            raise WireError(f"API {api_key} in version {version}")
        reader.take(4 + 4 + 4 + 1 + 4 + 4)  # limits, isolation, session
        found = []
        for _ in range(reader.count()):
            topic_id = reader.take(16)
            partitions = []
            for _ in range(reader.count()):
                index, _, offset = reader.get("i"), reader.get("i"), reader.get("q")
                reader.take(4 + 8 + 4)
                reader.tags()
                partitions.append((index, offset))
            reader.tags()
            found.append((topic_id, partitions))
        return found

    def _answer(self, correlation: int, tags: bytes, body: bytes) -> None:
        head = struct.pack(">ii", 4 + len(tags) + len(body), correlation)
        if self._follower is not None:
            self._follower.sendall(head + tags + body)
