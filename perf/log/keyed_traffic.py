"""What applications do with compacted topics: keyed records, tombstones, groups that commit.

One idempotent producer writes values that grow, of random keys, at a fixed rate; groups of one
member read along and commit every second. Who reads along, and who reads a topic from its beginning
once all is over, must have the same value of each key as the producer was last acknowledged:
compaction may drop what came before, and nothing else.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from perf.cells import CellError
from perf.cluster.brokers import until

KEYS: Final = 5_000  # of each topic
VALUE_BYTES: Final = 200
TOMBSTONES: Final = 0.02
STEP_S: Final = 0.05
BATCH: Final = 500
WAIT_S: Final = 60.0
STOP_S: Final = 5.0
SEED: Final = 1

Values = dict[tuple[str, bytes], bytes | None]


class KeyedTraffic:
    """Runs on threads of its own from `start` to `end`, whose CellError says what went wrong."""

    def __init__(self, address: str, topics: Sequence[str], rate: float, groups: int) -> None:
        """`rate`: records a second to all topics together."""
        self._address, self._topics, self._rate = address, topics, rate
        self._over, self._abandoned = threading.Event(), threading.Event()
        self._acknowledged: Values = {}
        self._records = 0
        self._failed: list[str] = []
        self._readers = [_Reader(address, topics, f"soak-{number}") for number in range(groups)]
        self._writing = threading.Thread(target=self._write, name="soak-writes", daemon=True)

    def start(self) -> None:
        for reader in self._readers:
            reader.start()
        self._writing.start()

    def check_going(self) -> None:
        """CellError if any part of it has failed."""
        for failed in (self._failed, *(reader.failed for reader in self._readers)):
            if failed:
                raise CellError(f"keyed records: {failed[0]}")

    def stop(self) -> None:
        """Ends the threads, whatever they have, and whether or not the broker is there."""
        self._over.set()
        self._abandoned.set()
        for reader in self._readers:
            reader.over.set()
        give_up_s = time.monotonic() + STOP_S  # a client whose broker is gone may take a minute
        for thread in (self._writing, *self._readers):
            if thread.is_alive():
                thread.join(max(0.0, give_up_s - time.monotonic()))

    def end(self) -> int:
        """Stops writing, lets the groups read to the end, reads all topics from the beginning.
        How many records were acknowledged; CellError, BrokerError."""
        self._over.set()
        self._writing.join()  # it gives up by itself
        self.check_going()
        again = _Reader(self._address, self._topics, f"soak-again-{time.time_ns()}")
        again.start()
        self._readers.append(again)
        for reader in self._readers:
            reader.until_has(self._acknowledged)
        return self._records

    def _acked(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))
            return
        self._records += 1
        self._acknowledged[message.topic(), message.key()] = message.value()

    def _write(self) -> None:
        import confluent_kafka

        chance = random.Random(SEED)
        body = chance.randbytes(VALUE_BYTES - 12)
        try:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 5,
                    "on_delivery": self._acked,
                }
            )  # fmt: skip
            number, began_s = 0, time.monotonic()
            while not self._over.wait(STEP_S) and not self._failed:
                while number < (time.monotonic() - began_s) * self._rate:
                    value = None if chance.random() < TOMBSTONES else b"%012d" % number + body
                    topic = self._topics[number % len(self._topics)]
                    producer.produce(topic, value, b"%08d" % chance.randrange(KEYS))
                    number += 1
                producer.poll(0)
            give_up_s = time.monotonic() + WAIT_S
            while (left := producer.flush(STEP_S)) and not self._abandoned.is_set():
                if time.monotonic() > give_up_s:
                    self._failed.append(f"{left} records were not answered for {WAIT_S:.0f} s")
                    return
        except (BufferError, confluent_kafka.KafkaException) as error:
            self._failed.append(str(error))


class _Reader(threading.Thread):
    """The only member of a group; keeps the last value of each key."""

    def __init__(self, address: str, topics: Sequence[str], group: str) -> None:
        super().__init__(name=group, daemon=True)
        self._address, self._topics, self._group = address, topics, group
        self.over = threading.Event()
        self.failed: list[str] = []
        self._values: Values = {}

    def run(self) -> None:
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._address, "group.id": self._group,
                "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000,
                "fetch.queue.backoff.ms": 5,
            }
        )  # fmt: skip
        try:
            consumer.subscribe(list(self._topics))
            while not self.over.is_set():
                for message in consumer.consume(BATCH, STEP_S):
                    if message.error():
                        self.failed.append(str(message.error()))
                        return
                    topic, key = message.topic(), message.key()
                    assert topic is not None and key is not None
                    self._values[topic, key] = message.value()
        except confluent_kafka.KafkaException as error:
            self.failed.append(str(error))
        # Not closed: leaving a group waits long for a broker that is gone.

    def until_has(self, wanted: Values) -> None:
        """CellError if it has failed, BrokerError if some key's value stays another."""

        def has() -> bool:
            if self.failed:
                raise CellError(f"{self._group}: {self.failed[0]}")
            return not differing(wanted, dict(self._values))

        until(f"{self._group} has the last value of {len(wanted)} keys", has, WAIT_S)


def differing(wanted: Values, found: Values) -> int:
    """How many keys have another value; no record is as good as a tombstone."""
    return sum(found.get(key) != wanted.get(key) for key in wanted.keys() | found.keys())
