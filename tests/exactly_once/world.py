"""The brokers of a scenario, its input, and what there is at its end.

One broker, or three; kbroker, or Apache Kafka for one where KBROKER_TEST_REFERENCE=kafka is set.
`Numbers` writes the input all along, each number once. In the end `settled` waits until no
transaction is open and reads the output by another client than the one under test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import confluent_kafka

from kbroker.errors import KafkaError
from kbroker.peer.client import Client
from kbroker.peer.groups import Groups
from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED
from kbroker.peer.messages import LATEST_TIMESTAMP
from kbroker.peer.transaction_messages import Filter
from kbroker.peer.transactions import OPEN_STATES, Transactions
from kbroker.testing import Cluster
from kbroker.testing.process import ServerProcess
from kbroker.types import TopicPartition
from tests.clients.adapters import Admin
from tests.exactly_once.checker import Ends
from tests.support import servers

OUTPUT: Final = "invoices"
OFFSETS_TOPIC: Final = "__consumer_offsets"
PARTITIONS: Final = 3
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.05
RATE: Final = 500  # records a second
# Members that were killed are missed soon, and so are producers.
SETTINGS: Final[Mapping[str, object]] = {
    "group.min.session.timeout.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}

Values = dict[int, list[bytes]]


@contextmanager
def one_broker(settings: Mapping[str, object] | None = None) -> Iterator[ServerProcess]:
    """Its port and its data stay while it is killed and started."""
    with ExitStack() as stack:
        server = servers.make({**SETTINGS, **(settings or {})})
        stack.callback(server.close)
        yield server.start()
        servers.assert_nothing_unexpected(server)


@contextmanager
def three_brokers() -> Iterator[Cluster]:
    settings = {
        **SETTINGS,
        "min.insync.replicas": 2,
        "transaction.state.log.num.partitions": 3,
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings) as made:
        yield made


def create(bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    admin = Admin(bootstrap, settle=servers.reference())
    for topic in topics:
        admin.create(topic, partitions)


def until(holds: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """`holds` is called until it is true. TimeoutError."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not true within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


class Numbers(threading.Thread):
    """An idempotent producer: each number once, to partition number % PARTITIONS."""

    def __init__(self, bootstrap: str, topic: str, rate: int = RATE) -> None:
        super().__init__(name="numbers")
        self._topic = topic
        self._rate = rate
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._ends = threading.Event()
        self.sent = 0
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._ends.wait(1 / self._rate):
            self._producer.poll(0)
            try:
                self._producer.produce(
                    self._topic,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._note,
                )
            except BufferError:  # the broker is away for long
                continue
            self.sent += 1

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def give_up(self) -> None:
        self._ends.set()
        self.join()

    def finish(self) -> Values:
        """Write no more; all values by partition, in their order."""
        self.give_up()
        if self._producer.flush(TIMEOUT_S) or self.failed:
            raise RuntimeError(f"the input was not written: {self.failed[:3]}")
        return {
            partition: [b"%d" % number for number in range(partition, self.sent, PARTITIONS)]
            for partition in range(PARTITIONS)
        }


def settled(
    bootstrap: str, topics: Sequence[str], timeout_s: float = TIMEOUT_S
) -> tuple[list[str], Ends]:
    """What is open when none is any more, or when the time is over: ids with their states, and the
    ends of these topics and of the groups' offsets."""
    end_s = time.monotonic() + timeout_s
    with Client(bootstrap) as client:
        while True:
            with suppress(KafkaError):  # a coordinator is loading
                found = _open(client), _ends(client, topics)
                if not found[0] and found[1].stable == found[1].high:
                    return found
                if time.monotonic() > end_s:
                    return found
            if time.monotonic() > end_s + timeout_s:
                raise TimeoutError("the brokers do not list their open transactions")
            time.sleep(POLL_S)


def _open(client: Client) -> list[str]:
    listed = Transactions(client).list_transactions(Filter(OPEN_STATES))
    return [f"{each.transaction.transactional_id} in {each.transaction.state}" for each in listed]


def _ends(client: Client, topics: Sequence[str]) -> Ends:
    known = client.metadata(None).topics
    places = {
        TopicPartition(topic, each.index): LATEST_TIMESTAMP
        for topic in (*topics, OFFSETS_TOPIC)
        if topic in known
        for each in known[topic].partitions
    }
    found = [
        {
            f"{place.topic}-{place.partition}": result.offset
            for place, result in client.list_offsets(places, isolation=isolation).items()
        }
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
    ]
    return Ends(*found)


def committed(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """Offsets of the group, by partition."""
    with Client(bootstrap) as client:
        found = Groups(client).offsets(group)
    return {place.partition: each.offset for place, each in found.items() if place.topic == topic}


def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    with Client(bootstrap) as client:
        high = _ends(client, [topic]).high
    return {
        int(place.rpartition("-")[2]): offset
        for place, offset in high.items()
        if place.rpartition("-")[0] == topic
    }


def read(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> Values:
    """All values that a reader of committed records gets, to the end of each partition."""
    values: Values = {partition: [] for partition in range(partitions)}
    for each in messages(bootstrap, topic, partitions):
        partition, value = each.partition(), each.value()
        assert partition is not None and isinstance(value, bytes)
        values[partition].append(value)
    return values


def messages(bootstrap: str, topic: str, partitions: int) -> Iterator[confluent_kafka.Message]:
    """Those of committed transactions and of none, partition by partition in their order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    ended: set[int | None] = set()
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    end_s = time.monotonic() + TIMEOUT_S
    while len(ended) < partitions:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{topic} is not read to its end: {ended}")
        for each in consumer.consume(1_000, 1.0):
            error = each.error()
            if error is None:
                yield each
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(each.partition())
    consumer.close()
