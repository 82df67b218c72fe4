"""`kbroker backup` beside producers, transactions and a group: what is restored goes on without a
gap, and a transaction is there in all of its partitions or in none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.peer.groups import Groups
from kbroker.testing.broker import Broker
from kbroker.testing.cluster import Cluster
from kbroker.testing.process import ServerProcess
from kbroker.types import TopicPartition
from tests.support.read_topic import EOF_AT_ONCE
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.timeout(120)

WAIT_S = 20
PARTITIONS = 3
SETTINGS = {"offsets.topic.num.partitions": 5, "transaction.state.log.num.partitions": 3}
PADDING = b" " + b"x" * 8_000  # so that segments of a megabyte are rolled


class Load:
    """Threads of clients that go on until the end, and how far each of them is."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._ends = threading.Event()
        self.written = [0] * PARTITIONS  # acknowledged, by partition
        self.committed = [0] * PARTITIONS
        self.transactions = 0
        self.trouble: list[BaseException] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        work = [self._number, self._transact, self._consume]
        threads = [threading.Thread(target=self._guarded, args=(each,)) for each in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in threads:
                thread.join(2 * WAIT_S)
        assert not self.trouble

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.trouble.append(error)

    def _number(self) -> None:
        """To each partition its own numbers, from 0 on, without a gap."""
        producer = confluent_kafka.Producer({
            "bootstrap.servers": self._server.bootstrap, "enable.idempotence": True, "linger.ms": 1,
        })  # fmt: skip
        number = 0
        while not self._ends.is_set():
            for partition in range(PARTITIONS):
                producer.produce("numbers", b"%d" % number + PADDING, partition=partition)
            assert producer.flush(WAIT_S) == 0
            number += 1
            self.written = [number] * PARTITIONS

    def _transact(self) -> None:
        """The same number to both partitions; every third transaction is aborted."""
        producer = transactional(self._server, "pairs")
        while not self._ends.is_set():
            number = self.transactions
            producer.begin_transaction()
            aborts = number % 3 == 2
            for partition in range(2):
                value = b"aborted" if aborts else b"%d" % number
                producer.produce("pairs", value, partition=partition)
            if aborts:
                producer.flush(WAIT_S)
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
            self.transactions += 1

    def _consume(self) -> None:
        consumer = member(self._server)
        consumer.subscribe(["numbers"])
        try:
            while not self._ends.is_set():
                if consumer.consume(50, 0.2):
                    for each in consumer.commit(asynchronous=False) or []:
                        self.committed[each.partition] = each.offset
        finally:
            consumer.close()


def transactional(server: ServerProcess, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({
        "bootstrap.servers": server.bootstrap, "transactional.id": name, "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(WAIT_S)
    return producer


def member(server: ServerProcess) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({
        "bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "error",
        "enable.auto.commit": False, "session.timeout.ms": 6000,
    })  # fmt: skip


def create(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topics = [
        NewTopic("numbers", PARTITIONS, 1, config={"segment.bytes": str(1 << 20)}),
        NewTopic("pairs", 2, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_S)
    with Client(server.bootstrap) as client:
        first = {TopicPartition("numbers", index): 0 for index in range(PARTITIONS)}
        Groups(client).commit("g", first)


def values(server: ServerProcess, topic: str, partition: int) -> list[bytes]:
    """Committed ones."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": server.bootstrap, "group.id": "reader", "check.crcs": True,
        "enable.auto.commit": False, **EOF_AT_ONCE, "isolation.level": "read_committed",
    })  # fmt: skip
    try:
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, begin)])
        found: list[bytes] = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found.append(message.value() or b"")
    finally:
        consumer.close()


def test_a_broker_under_load_is_saved_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def backup(*words: str) -> dict[str, object]:
        status = main(["backup", *words, "-o", "json"])
        said = capsys.readouterr()
        assert status == 0, said.err
        found: dict[str, object] = json.loads(said.out)
        return found

    one, two, data = str(tmp_path / "one"), str(tmp_path / "two"), tmp_path / "new"
    with Broker(SETTINGS, data_dir=tmp_path / "data") as broker:
        create(broker)
        open_since = transactional(broker, "open")
        open_since.begin_transaction()
        for partition in range(2):
            open_since.produce("pairs", b"open", partition=partition)
        assert open_since.flush(WAIT_S) == 0
        load = Load(broker)
        where = ["--data-dir", str(broker.data_dir), "-b", broker.bootstrap]
        with load.running():
            eventually(lambda: load.written[0] > 300 or load.trouble, "some segments")
            eventually(lambda: min(load.committed) > 0 or load.trouble, "commits")
            backup("create", one, *where)
            written, committed = list(load.written), list(load.committed)
            transactions = load.transactions
            made = backup("create", two, *where, "--base", one)
        cluster = broker_cluster(broker)
        broker.stop()
        assert made["linked_bytes"] and made["copied_bytes"]
        checked = backup("verify", two)
        assert (checked["damage"], checked["committed_offsets"]) == ([], PARTITIONS)
        done = backup("restore", two, "--data-dir", str(data), "--cluster-id", "another")
        assert (done["cluster_id"], done["transactional_ids"]) == ("another", True)
        assert done["offsets_corrected"] == []
        assert main(["backup", "restore", one, "--data-dir", str(data)]) == 5
        assert "is not empty" in capsys.readouterr().err
    with Broker(SETTINGS, data_dir=data) as new:
        assert broker_cluster(new) == "another" != cluster
        for partition in range(PARTITIONS):
            there = [int(value.split()[0]) for value in values(new, "numbers", partition)]
            assert there == list(range(len(there)))
            assert len(there) >= written[partition]
        check_pairs(new, transactions)
        check_group(new, committed)
        for name in ("pairs", "open"):  # they go on, and are fenced where they were open
            producer = transactional(new, name)
            producer.begin_transaction()
            for partition in range(2):
                producer.produce("pairs", b"after", partition=partition)
            producer.commit_transaction(WAIT_S)
        assert values(new, "pairs", 0)[-2:] == values(new, "pairs", 1)[-2:] == [b"after"] * 2


def broker_cluster(server: ServerProcess) -> str | None:
    with Client(server.bootstrap) as client:
        return client.metadata([]).cluster_id


def check_pairs(new: ServerProcess, transactions: int) -> None:
    """Every transaction that had ended before is there; none is there by half."""
    one, other = (values(new, "pairs", partition) for partition in range(2))
    assert one == other
    numbers = [int(value) for value in one]
    assert numbers == [each for each in range(numbers[-1] + 1) if each % 3 != 2]
    assert numbers[-1] >= transactions - 2


def check_group(new: ServerProcess, committed: list[int]) -> None:
    """It goes on where it was when the backup was made, or after."""
    with Client(new.bootstrap) as client:
        offsets = Groups(client).offsets("g")
    producer = confluent_kafka.Producer({"bootstrap.servers": new.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce("numbers", b"after", partition=partition)
    assert producer.flush(WAIT_S) == 0
    consumer = member(new)
    consumer.subscribe(["numbers"])
    first: dict[int | None, int | None] = {}
    try:
        while len(first) < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None
            first.setdefault(message.partition(), message.offset())
    finally:
        consumer.close()
    for partition in range(PARTITIONS):
        saved = offsets[TopicPartition("numbers", partition)].offset
        assert first[partition] == saved >= committed[partition]


def test_the_brokers_of_a_cluster_become_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each saves the partitions that it leads; the metadata are in ZooKeeper."""
    orders = [TopicPartition("orders", index) for index in range(4)]
    with Cluster(2, SETTINGS, topics={"orders": 4}) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for partition in range(4):
            for number in range(10):
                producer.produce("orders", b"%d" % number, partition=partition)
        assert producer.flush(WAIT_S) == 0
        with Client(cluster.bootstrap) as client:
            Groups(client).commit("g", {name: 4 + name.partition for name in orders})
        backups = [str(tmp_path / f"{broker.broker_id}") for broker in cluster.brokers.values()]
        for place, broker in zip(backups, cluster.brokers.values(), strict=True):
            words = [place, "--data-dir", str(broker.data_dir), "-b", cluster.bootstrap]
            zookeeper = ["--zookeeper", cluster.zookeeper.connect, "-o", "json"]
            assert main(["backup", "create", *words, *zookeeper]) == 0, capsys.readouterr().err
            made = json.loads(capsys.readouterr().out)
            assert 0 < len(made["partitions"]) < 4
            assert made["partitions_elsewhere"] == 4 - len(made["partitions"])
    data = str(tmp_path / "new")
    assert main(["backup", "restore", backups[0], "--data-dir", data]) == 2
    assert "partitions of orders are in these backups" in capsys.readouterr().err
    assert main(["backup", "restore", *backups, "--data-dir", data]) == 0, capsys.readouterr().err
    with Broker(SETTINGS, data_dir=data) as new:
        for partition in range(4):
            assert values(new, "orders", partition) == [b"%d" % number for number in range(10)]
        with Client(new.bootstrap) as client:
            offsets = Groups(client).offsets("g")
    assert {name: each.offset for name, each in offsets.items()} == {
        name: 4 + name.partition for name in orders
    }
