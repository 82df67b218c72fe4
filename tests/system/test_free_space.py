"""A broker whose disk is nearly full, by a bound that is set and taken back while it serves."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from tests.support import broker_settings
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

WAIT_S = 30.0
ALL_THERE_IS = 1 << 60


def create(broker: Broker, topic: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(WAIT_S)


def demand(broker: Broker, free_bytes: int) -> None:
    broker_settings.change(broker.bootstrap, "log.dir.min.free.bytes", free_bytes)


def produced(broker: Broker, topic: str, count: int, bytes_each: int = 10) -> str:
    """The name of the last delivery's error; a producer that does not try again."""
    errors: list[str] = []

    def on_delivery(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        errors.append("" if error is None else error.name())

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "retries": 0, "acks": 1}
    )
    for _ in range(count):
        producer.produce(topic, b"." * bytes_each, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0
    return errors[-1]


def test_producers_are_refused_before_the_disk_is_full(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    create(broker, "words")
    assert produced(broker, "words", 5) == ""
    demand(broker, ALL_THERE_IS)
    eventually(lambda: produced(broker, "words", 1) == "KAFKA_STORAGE_ERROR", "a refusal")

    # Reads go on, and so does what the broker writes for its groups.
    reader = confluent_kafka.Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
    })  # fmt: skip
    reader.subscribe(["words"])
    try:
        assert len(reader.consume(5, WAIT_S)) == 5
        reader.commit(asynchronous=False)
    finally:
        reader.close()

    demand(broker, 0)
    eventually(lambda: produced(broker, "words", 1) == "", "room")
    broker.stop()
    assert "producers may write again" in broker.log_text()


@pytest.mark.parametrize("bound", [{"retention.bytes": "1"}, {"retention.ms": "1"}])
def test_records_beyond_retention_go_at_once(
    make_broker: MakeBroker, bound: dict[str, str]
) -> None:
    """Neither the sweep, which comes a day later, nor the delay of an hour is waited for."""
    settings = {**KEEPS_WHAT_IS_OLD, "log.segment.delete.delay.ms": 3_600_000}
    broker = make_broker(settings).start()
    create(
        broker, "words",
        **{"segment.bytes": "1048576", "file.delete.delay.ms": "3600000", **bound},
    )  # fmt: skip
    assert produced(broker, "words", 40, 100_000) == ""
    log = broker.data_dir / "words-0"
    assert len(list(log.glob("*.log"))) > 3
    demand(broker, ALL_THERE_IS)
    eventually(lambda: len(list(log.glob("*.log*"))) <= 2, "old segments to go")
