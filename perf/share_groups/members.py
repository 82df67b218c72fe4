"""Members of a share group: heartbeats, ShareFetch and ShareAcknowledge, byte by byte.

A member names the one partition of its topic in its first fetch. Each later request acknowledges
all that the response before it has brought; the records are not looked into. ShareFetch 1 and
ShareAcknowledge 1, of Apache Kafka 4.1 and later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from perf.client import READY_RETRY_S, READY_WAIT_S, Client, ClientError
from perf.requests import Topic
from perf.wire import Reader, Writer, frame, request_header

SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
VERSION: Final = 1
ACCEPT: Final = 1
FETCH_BYTES: Final = 1 << 20
ID_BYTES: Final = 16
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
PASSING = (14, 15, 16)

Span = tuple[int, int]  # offsets, both ends included


class Taken(NamedTuple):
    """Of a response: what the member has now."""

    spans: list[Span]

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)


def join(client: Client, group: str, member_id: str, topic: Topic) -> None:
    """Until it has the partition: then the state of it is begun."""
    epoch, give_up = 0, time.monotonic() + READY_WAIT_S
    while True:
        w = Writer(flexible=True).string(group).string(member_id).put("i", epoch).string(None)
        w.count(1).string(topic.name).tags()
        r = client.ask(SHARE_GROUP_HEARTBEAT, VERSION, bytes(w.data))
        r.get("i")
        code = r.get("h")
        if code and (code not in PASSING or time.monotonic() > give_up):
            raise ClientError(f"a heartbeat of {member_id} in {group}", code)
        if not code:
            r.string()
            r.string()
            epoch = r.get("i")
            r.get("i")
            if r.get("b") >= 0 and r.count():
                return
        if time.monotonic() > give_up:
            raise ClientError(f"{member_id} of {group} gets no partition", 0)
        time.sleep(READY_RETRY_S)


class Member:
    """One session; makes its requests, and reads their responses."""

    def __init__(self, group: str, member_id: str, topic: Topic) -> None:
        self._group, self._member_id, self._topic = group, member_id, topic
        self._epoch = 0

    def _begin(self) -> Writer:
        w = Writer(flexible=True).string(self._group).string(self._member_id)
        w.put("i", self._epoch)
        self._epoch += 1
        return w

    def _put_topic(self, w: Writer, spans: list[Span]) -> Writer:
        w.count(1).raw(self._topic.topic_id).count(1).put("i", 0).count(len(spans))
        for first, last in spans:
            w.put("qq", first, last).count(1).put("b", ACCEPT).tags()
        return w.tags().tags()

    def fetch(self, spans: list[Span], wait_ms: int, records: int) -> bytes:
        """The frame, with acknowledgements."""
        is_first = self._epoch == 0
        w = self._begin().put("iiiii", wait_ms, 1, FETCH_BYTES, records, records)
        if spans or is_first:
            self._put_topic(w, spans)
        else:
            w.count(0)
        w.count(0).tags()
        return frame(request_header(SHARE_FETCH, VERSION), bytes(w.data))

    def acknowledge(self, spans: list[Span]) -> bytes:
        w = self._put_topic(self._begin(), spans).tags()
        return frame(request_header(SHARE_ACKNOWLEDGE, VERSION), bytes(w.data))

    def fetched(self, data: bytes) -> Taken:
        """Of a response without its size. ClientError: an error, of an acknowledgement, too."""
        spans: list[Span] = []

        def partition(r: Reader) -> None:
            self._check(r, "an acknowledgement")
            r.get("i")
            r.get("i")
            r.tags()
            r.take(max(0, r.uvarint() - 1))
            for _ in range(r.count()):
                spans.append((r.get("q"), r.get("q")))
                r.get("h")
                r.tags()
            r.tags()

        self._partitions(data, partition, has_lock=True)
        return Taken(spans)

    def acknowledged(self, data: bytes) -> None:
        """The same of ShareAcknowledge."""

        def partition(r: Reader) -> None:
            r.get("i")
            r.get("i")
            r.tags()
            r.tags()

        self._partitions(data, partition, has_lock=False)

    def _partitions(self, data: bytes, rest: Callable[[Reader], None], *, has_lock: bool) -> None:
        r = Reader(data, flexible=True)
        r.get("i")
        r.tags()
        r.get("i")
        self._check(r, "a request")
        if has_lock:
            r.get("i")
        for _ in range(r.count()):
            r.take(ID_BYTES)
            for _ in range(r.count()):
                r.get("i")
                self._check(r, "a partition")
                rest(r)
            r.tags()

    def _check(self, r: Reader, of_what: str) -> None:
        code = r.get("h")
        r.string()
        if code:
            raise ClientError(f"{of_what} of {self._member_id} in {self._group}", code)
