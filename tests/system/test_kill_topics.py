"""kill -9 around the changes of a topic: answered changes stay, others are whole or absent.

Records that were deleted stay deleted, partitions that were added are there and take records.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kbroker.log.engine.checkpoints import LOG_START_FILE, read_offsets
from kbroker.testing.process import ServerProcess
from kbroker.types import TopicPartition
from tests.clients.adapters.confluent import eventually
from tests.support import servers

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

TOPIC = "cut"
ROUNDS = 4
WAIT_S = 60


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        server = servers.make()
        stack.callback(server.close)
        yield server.start()
        servers.assert_nothing_unexpected(server)


def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


def create(server: ServerProcess, partitions: int, **config: str) -> None:
    configs = {name.replace("_", "."): value for name, value in config.items()}
    client = admin(server)
    client.create_topics([NewTopic(TOPIC, partitions, 1, config=configs)])[TOPIC].result(WAIT_S)


def grow(server: ServerProcess, count: int) -> None:
    client = admin(server)
    client.create_partitions([NewPartitions(TOPIC, count)])[TOPIC].result(WAIT_S)


def produce(server: ServerProcess, partition: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    failures: list[object] = []

    def note(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=note)
        if number % 10 == 0:
            producer.flush(WAIT_S)
    assert producer.flush(WAIT_S) == 0 and not failures


def watermarks(server: ServerProcess, partition: int) -> tuple[int, int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "log_level": 0}
    )
    try:
        place = confluent_kafka.TopicPartition(TOPIC, partition)
        first, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        return first, end
    finally:
        consumer.close()


def trim(server: ServerProcess, partition: int, offset: int) -> int:
    place = confluent_kafka.TopicPartition(TOPIC, partition, offset)
    client = admin(server)
    (answer,) = client.delete_records([place]).values()
    return int(answer.result(WAIT_S).low_watermark)


def partition_count(server: ServerProcess) -> int:
    return len(admin(server).list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions)


def test_deleted_records_stay_deleted(server: ServerProcess) -> None:
    create(server, 2, segment_bytes="1048576")
    for round_number in range(1, ROUNDS + 1):
        produce(server, 0, 100)
        produce(server, 1, 10)
        end = round_number * 100
        offset = random.Random(round_number).randrange(end - 90, end)
        assert trim(server, 0, offset) == offset
        server.kill9()  # nothing but the answer came between
        server.start()
        assert watermarks(server, 0) == (offset, end)
        assert watermarks(server, 1) == (0, round_number * 10)
    assert trim(server, 0, -1) == ROUNDS * 100
    # What is below goes in the background; the start is known without it.
    active = f"{ROUNDS * 100:020d}.log"
    directory = server.data_dir / f"{TOPIC}-0"
    eventually(lambda: {path.name for path in directory.glob("*.log")} == {active})
    server.kill9()
    server.start()
    assert watermarks(server, 0) == (ROUNDS * 100, ROUNDS * 100)
    assert not list(directory.glob("*.deleted"))
    server.stop()
    assert read_offsets(server.data_dir / LOG_START_FILE) == {
        TopicPartition(TOPIC, 0): ROUNDS * 100
    }


def test_added_partitions_are_whole_or_absent_and_producing_goes_on(server: ServerProcess) -> None:
    create(server, 1)
    count = 1
    for round_number in range(ROUNDS):
        wanted = count + 20
        asking = admin(server)
        asking.create_partitions([NewPartitions(TOPIC, wanted)])
        # At some moment in or after the change, another one each round.
        threading.Event().wait(0.004 * round_number)
        server.kill9()
        del asking  # or it asks again, being a client that does not give up
        server.start()
        assert partition_count(server) in (count, wanted)
        if partition_count(server) == count:
            grow(server, wanted)
        count = wanted
        assert partition_count(server) == count
        for partition in (0, count - 20, count - 1):
            produce(server, partition, 3)
        assert watermarks(server, count - 1) == (0, 3)


def test_partitions_are_added_under_load(server: ServerProcess) -> None:
    create(server, 1)
    stopping = threading.Event()
    delivered: dict[int, int] = {}
    failures: list[object] = []

    def note(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            partition = message.partition()
            assert partition is not None
            delivered[partition] = delivered.get(partition, 0) + 1

    def load() -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "linger.ms": 1,
                "topic.metadata.refresh.interval.ms": 100,
                "sticky.partitioning.linger.ms": 0,
            }
        )
        number = 0
        while not stopping.is_set():
            producer.produce(TOPIC, b"x", key=b"%d" % number, on_delivery=note)
            number += 1
            if number % 100 == 0:
                producer.flush(WAIT_S)
        producer.flush(WAIT_S)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for count in (4, 16, 40):
            grow(server, count)
            eventually(lambda count=count: len(delivered) == count)
    finally:
        stopping.set()
        thread.join()
    assert failures == []
    for partition, records in delivered.items():
        assert watermarks(server, partition) == (0, records)
