"""A topic of one's own: made with its settings where it is not there yet, then written to.

For records that a program tells of itself: a broker's samples, measurements, a job's progress. Each
`send` returns when its records are acknowledged by all replicas in sync, with a producer id, so
that one sent again after a lost connection is not stored twice.

A publisher that has failed is closed and made anew: what it wrote last may have arrived, and its
sequence numbers would take the next records for that. So records are written twice at the worst,
and their fields tell a reader which are the same.

Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from kbroker.compression import Codec
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin


class Publisher:
    """`made`: whether the topic was not there before. KafkaError, UserError where it fails."""

    def __init__(
        self,
        bootstrap: str,
        topic: NewTopic,
        *,
        client_id: str,
        timeout_ms: int = 30_000,
        codec: Codec = Codec.NONE,
        login: ClientLogin | None = None,
    ) -> None:
        self.client: Final = Client(
            bootstrap, client_id=client_id, timeout_ms=timeout_ms, login=login
        )
        try:
            (result,) = self.client.create_topics([topic])
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(result.error, f"{topic.name}: {result.message or 'not made'}")
            self.made: Final = result.error is ErrorCode.NONE
            self._producer = Producer(self.client, topic.name, acks=-1, codec=codec)
        except BaseException:
            self.client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, records: Iterable[Record]) -> int:
        """How many were written."""
        return self._producer.send(records)

    def close(self) -> None:
        self.client.close()
