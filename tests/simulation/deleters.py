"""A client that deletes records of a simulated cluster: it asks the leader that it knows.

`Safety.deleted` checks the answer: the logs of all live replicas begin at that offset, and so does
the log of every later leader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.admin_messages import decode_delete_records, encode_delete_records
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.clients import Client
from tests.simulation.network import CLIENTS, Answer

if TYPE_CHECKING:
    from tests.simulation.broker import Running

VERSION = 2
TIMEOUT_MS = 800
TO_HIGH_WATERMARK = -1
_EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that starts knows no topic yet
        ErrorCode.OFFSET_OUT_OF_RANGE,  # beyond the high watermark of a leader that came just now
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Deleter(Client):
    """See the head of this file."""

    def delete(self, name: TopicPartition, percent: int) -> None:
        """So many percent of the committed records; 0: all below the high watermark."""
        leader, _ = self._leader_of(name)
        if leader == NO_LEADER:
            return
        committed = len(self._cluster.safety.partition(name).committed)
        offset = committed * percent // 100 if percent else TO_HIGH_WATERMARK
        serve = partial(self._serve, name, offset)
        self._cluster.network.request(
            self._cluster.clients, (CLIENTS, leader), serve, lambda response: None
        )

    def _serve(self, name: TopicPartition, offset: int, running: Running, answer: Answer) -> None:
        before = self._cluster.safety.registered(running)

        def done(answered: bytes) -> None:
            response = decode_delete_records(Reader(answered, flexible=True), VERSION)[name]
            if response.error is ErrorCode.NONE:
                start = max(offset, response.low_watermark)
                self._cluster.safety.deleted(running, name, start, before)
            elif response.error not in _EXPECTED:
                detail = f"broker {running.node_id} answers {response.error.name}"
                self._cluster.safety.fail("a broker that deletes nothing gives a reason", detail)
            answer(response)

        body = encode_delete_records(VERSION, {name: offset}, timeout_ms=TIMEOUT_MS)
        running.serve(ApiKey.DELETE_RECORDS, VERSION, body, done)
