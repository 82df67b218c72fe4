"""A byte rots under a broker that serves: the scrub finds it, and has it from another replica."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.plain import PlainBroker as Broker
from tests.support import broker_settings
from tests.support.zookeeper import ZooKeeper
from tests.system.conftest import MakeBroker
from tests.system.test_metrics import scrape
from tests.unit.net.harness import eventually

WAIT_S = 30.0
DAMAGED, READ = "kbroker_log_scrub_damaged_batches", "kbroker_log_scrub_read_bytes_total"
REPAIRED = "kbroker_log_scrub_repaired_batches_total"


def write_three_segments(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic("words", 1, replicas, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([wanted])["words"].result(WAIT_S)
    # Of a batch as large as a segment the one before would stay small.
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "batch.size": 16_384}
    producer = confluent_kafka.Producer(settings)
    for number in range(3_000):
        producer.produce("words", b"%d " % number + b"." * 1_000)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def flip(segment: Path) -> bytes:
    """A bit in the middle of it; what it was before."""
    before = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes([before[500_000] ^ 1]))
    return before


def test_bytes_that_rot_under_a_broker_are_found_and_reported(make_broker: MakeBroker) -> None:
    broker = make_broker({"log.initial.task.delay.ms": 0}).start()
    write_three_segments(broker.bootstrap, 1)

    broker_settings.change(broker.bootstrap, "log.scrub.interval.ms", 1_000)
    eventually(lambda: scrape(broker)[READ][""] > 2 << 20, "a look at every full segment")
    assert scrape(broker)[DAMAGED][""] == 0

    first = min((broker.data_dir / "words-0").glob("*.log"))
    flip(first)
    eventually(lambda: scrape(broker)[DAMAGED][""] == 1, "the batch that rots")
    assert f"{first} has rotted at offset " in broker.log_text()
    assert broker.log_text().count("has rotted") == 1


@pytest.mark.timeout(180)
def test_bytes_that_rot_in_a_cluster_come_from_the_other_replica(
    make_broker: MakeBroker, zookeeper: ZooKeeper
) -> None:
    """On the leader and on its follower, one after the other."""
    connect = zookeeper.connect + zookeeper.chroot()
    settings = {
        "zookeeper.connect": connect, "log.initial.task.delay.ms": 0, "min.insync.replicas": 2,
        "log.scrub.interval.ms": 500, "log.scrub.max.bytes.per.second": 1 << 30,
    }  # fmt: skip
    brokers = [make_broker({**settings, "node.id": node}).start() for node in (1, 2)]
    write_three_segments(brokers[0].bootstrap, 2)
    for broker in brokers:
        rots_and_is_repaired(broker)


def rots_and_is_repaired(broker: Broker) -> None:
    first = min((broker.data_dir / "words-0").glob("*.log"))
    before = flip(first)
    eventually(lambda: scrape(broker)[REPAIRED][""] == 1, "the batch from the other replica")
    assert first.read_bytes() == before
    eventually(lambda: scrape(broker)[DAMAGED][""] == 0, "no damage")
    eventually(lambda: "is repaired, from broker" in broker.log_text(), "a line after the count")
