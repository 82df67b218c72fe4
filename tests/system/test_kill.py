"""kill -9 under load: after the restart, everything that was acknowledged is there, in order.

The page cache outlives the process, so no fsync is needed for this; what could lose data is the
recovery of the log's end. KBROKER_TEST_REFERENCE=kafka runs the same against Apache Kafka.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest

from kbroker.testing.process import ServerProcess
from tests.clients.adapters import Admin, Confluent
from tests.clients.adapters.confluent import eventually
from tests.support import batches, servers

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

TOPIC = "load"
PARTITIONS = 3
ROUNDS = 3
ACKNOWLEDGED_PER_ROUND = 3000


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        server = servers.make()
        stack.callback(server.close)
        yield server.start()
        servers.assert_nothing_unexpected(server)


class Load(threading.Thread):
    """One producer that sends numbered values until stopped, noting its acknowledged ones."""

    def __init__(self, bootstrap: str, prefix: str, settings: dict[str, object]) -> None:
        super().__init__(name=f"load-{prefix}")
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": 5000,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # that connections fail is the point here
                **settings,
            }
        )
        self._prefix = prefix
        self._stopping = threading.Event()
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = b"%s-%d" % (self._prefix.encode(), number)
            try:
                self._producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._note
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            number += 1
            self._producer.poll(0)

    def _note(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and isinstance(value, bytes)
            self.acknowledged[partition, offset] = value

    def finish(self) -> None:
        self._stopping.set()
        self.join()
        self._producer.purge()
        self._producer.flush(10)
        del self._producer  # ends its threads, which would try to connect for ever


LOADS: tuple[dict[str, object], ...] = (
    {"acks": "1", "enable.idempotence": False},
    {"acks": "all", "enable.idempotence": True, "compression.type": "lz4"},
    {"acks": "all", "enable.idempotence": False, "compression.type": "gzip", "batch.size": 2000},
)


def test_nothing_acknowledged_is_lost(server: ServerProcess) -> None:
    Admin(server.bootstrap, settle=servers.reference()).create(
        TOPIC, PARTITIONS, {"segment.bytes": "1048576"}
    )
    acknowledged: dict[tuple[int, int], bytes] = {}
    for round_number in range(ROUNDS):
        loads = [
            Load(server.bootstrap, f"{round_number}-{n}", settings)
            for n, settings in enumerate(LOADS)
        ]
        for load in loads:
            load.start()
        try:
            for load in loads:
                eventually(lambda load=load: len(load.acknowledged) > ACKNOWLEDGED_PER_ROUND)
            server.kill9()  # in the middle of all three
        finally:
            for load in loads:
                load.finish()
        server.start()
        for load in loads:
            clash = acknowledged.keys() & load.acknowledged.keys()
            assert not clash, "an offset was given out twice"
            acknowledged |= load.acknowledged
        assert missing(server.bootstrap, acknowledged) == {}
    for partition in range(PARTITIONS):  # and the files are whole
        expected = 0
        for batch in batches.read_batches(server.data_dir, TOPIC, partition):
            assert batch.base_offset == expected
            expected = batch.base_offset + batch.last_offset_delta + 1


def missing(
    bootstrap: str, acknowledged: dict[tuple[int, int], bytes]
) -> dict[tuple[int, int], tuple[bytes, bytes | None]]:
    """Acknowledged values that are not there, with those in their place."""
    found: dict[tuple[int, int], bytes | None] = {}
    client = Confluent(bootstrap)
    for partition in range(PARTITIONS):
        with client.consumer() as consumer:
            first, end = consumer.offsets(TOPIC, partition)
        for record in client.consume(TOPIC, end - first, partition=partition):
            found[partition, record.offset] = record.value
    return {
        place: (value, found.get(place))
        for place, value in acknowledged.items()
        if found.get(place) != value
    }
