"""Client, Producer and Consumer: what the tests need of a client library, and no more.

Records with key, value, headers and timestamp go out, deliveries with offset and error code come
back; consumers read by assignment, without groups. Whatever a library does on its own (batching,
retries, compression) stays its own doing. Each instance belongs to one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60.0

BEGINNING = -2
END = -1

next_number = itertools.count(1).__next__

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None  # None: the client's clock


class Delivery(NamedTuple):
    partition: int
    offset: int
    error: int  # Kafka's code; 0 when it was stored


class Received(NamedTuple):
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None
    headers: Headers


class Producer(AbstractContextManager["Producer"]):
    def send(self, topic: str, record: Record, partition: int | None = 0) -> None:
        """Hand over; partition None leaves the choice to the library's partitioner."""
        raise NotImplementedError

    def flush(self) -> list[Delivery]:
        """What became of everything sent since the last flush, in the order of sending."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer(AbstractContextManager["Consumer"]):
    def poll(self, timeout_s: float) -> list[Received]:
        """Some records, in order; none after timeout_s."""
        raise NotImplementedError

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with that timestamp or a later one."""
        raise NotImplementedError

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the one after the last."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """A library bound to one broker."""

    name = "client"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(
        self,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        message_bytes_max: int = 1_000_000,
        batch_bytes: int = 16_384,
        linger_ms: int = 50,
    ) -> Producer:
        raise NotImplementedError

    def consumer(
        self,
        topic: str | None = None,
        partition: int = 0,
        offset: int = BEGINNING,
        wait_ms_max: int = 500,
        fetch_bytes_max: int = 50 << 20,
        committed: bool = False,
    ) -> Consumer:
        """A consumer that reads one partition from that offset, or none without a topic.

        `committed`: no record of a transaction that is open or was aborted.
        """
        raise NotImplementedError

    # -- in terms of the two above

    def produce(
        self, topic: str, records: Iterable[Record], partition: int | None = 0, **options: Any
    ) -> list[Delivery]:
        with self.producer(**options) as producer:
            for record in records:
                producer.send(topic, record, partition)
            return producer.flush()

    def consume(
        self,
        topic: str,
        count: int,
        partition: int = 0,
        offset: int = BEGINNING,
        timeout_s: float = TIMEOUT_S,
        **options: Any,
    ) -> Iterator[Received]:
        """count records; fails when none comes for timeout_s."""
        left = count
        with self.consumer(topic, partition, offset, **options) as consumer:
            while left > 0:
                received = consumer.poll(timeout_s)
                if not received:
                    raise TimeoutError(
                        f"{self.name}: {left} of {count} records of {topic}-{partition} are "
                        f"missing after {timeout_s} s without one"
                    )
                yield from received[:left]
                left -= len(received)
