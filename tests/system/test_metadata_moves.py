"""One broker that grows into a cluster: its metadata goes to ZooKeeper, and everything goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.testing.broker import Broker
from kbroker.testing.inspection import wait_until
from kbroker.testing.zookeeper.server import ZooKeeperServer
from lab.ports import free_port

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

TOPIC = "orders"
GROUP = "readers"
RECORDS = [b"%d" % number for number in range(100)]


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def write(bootstrap: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all",
                                         "enable.idempotence": True})  # fmt: skip
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0


def group_of(bootstrap: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})


def producer_id_of(bootstrap: str) -> int:
    with Client(bootstrap) as client:
        return client.init_producer_id().producer_id


def leader_epoch_of(bootstrap: str) -> int:
    with Client(bootstrap) as client:
        return client.metadata([TOPIC]).topics[TOPIC].partitions[0].leader_epoch


def refused(broker: Broker, settings: tuple[str, ...]) -> str:
    """What a start says that ends at once."""
    command = [sys.executable, "-m", "kbroker", "start", "--data-dir", str(broker.data_dir),
               "--port", "0"]  # fmt: skip
    for each in settings:
        command += ["--override", each]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode not in (0, 1), ran
    return ran.stderr


def test_a_broker_that_was_alone_becomes_the_first_of_a_cluster(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    where, file = f"{zookeeper.connect}/kafka", tmp_path / "tree.json"
    with Broker(port=free_port(), topics={TOPIC: 1}) as one:
        write(one.bootstrap, RECORDS)
        reader = group_of(one.bootstrap)
        reader.commit(offsets=[TopicPartition(TOPIC, 0, 40)], asynchronous=False)
        reader.close()
        wanted = ["config", "set", "-t", TOPIC, "retention.ms=98765432"]
        assert main([*wanted, "-b", one.bootstrap]) == 0
        producer_id, epoch = producer_id_of(one.bootstrap), leader_epoch_of(one.bootstrap)
        with Client(one.bootstrap) as client:
            cluster_id = client.metadata().cluster_id
        one.stop()

        assert main(["metadata", "export", "--data-dir", str(one.data_dir), str(file)]) == 0
        assert "kbroker metadata undo-export" in refused(one, ())
        assert main(["metadata", "import", "--zookeeper", where, str(file)]) == 0

        one.overrides |= {"zookeeper.connect": where, "zookeeper.session.timeout.ms": "6000"}
        one.start()
        with Client(one.bootstrap) as client:
            assert client.metadata().cluster_id == cluster_id
            found = {each.name: each.value for each in client.topic_configs(TOPIC)}
            assert found["retention.ms"] == "98765432"
        assert [each.value for each in one.records(TOPIC)] == RECORDS
        reader = group_of(one.bootstrap)
        (committed,) = reader.committed([TopicPartition(TOPIC, 0)], timeout=30)
        reader.close()
        assert committed.offset == 40
        assert producer_id_of(one.bootstrap) > producer_id
        assert leader_epoch_of(one.bootstrap) >= epoch
        write(one.bootstrap, [b"more"])

        two_settings: dict[str, object] = {**one.overrides, "node.id": 2}
        two_settings.pop("listeners", None)
        with Broker(two_settings, port=free_port()) as two:
            assert main(["partition", "move", TOPIC, "--to", "2,1", "-b", one.bootstrap]) == 0
            with Client(one.bootstrap) as client, Client(two.bootstrap) as other:
                wait_until(lambda: not client.reassignments(), "it is there")

                def both_in_sync() -> bool:
                    described = [each.metadata([TOPIC]).topics[TOPIC] for each in (client, other)]
                    found = [each.partitions[0] for each in described]
                    return all(at.replicas == (2, 1) and len(at.isr) == 2 for at in found)

                wait_until(both_in_sync, "both are in sync, and know it")
            assert [each.value for each in two.records(TOPIC)] == [*RECORDS, b"more"]
