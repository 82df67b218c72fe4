"""`kbroker dump-log` over what brokers left: ours, and Apache Kafka's."""

from __future__ import annotations

import json
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.testing.process import ServerProcess
from tests.support.kafka import KafkaBroker
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

WAIT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 3_000  # of each codec


def write(broker: ServerProcess) -> None:
    """A topic for each codec, of several segments; a group's commit."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"}
    for made in admin.create_topics([NewTopic(c, 1, 1, config=settings) for c in CODECS]).values():
        made.result(WAIT_S)
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap, "compression.type": codec,
                "enable.idempotence": True, "batch.num.messages": 50,
            }
        )  # fmt: skip
        for number in range(COUNT):
            value = b"%d " % number + b"".join(b"%d" % (number * n) for n in range(150))
            producer.produce(codec, value, b"%d" % (number % 100), partition=0)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        eventually(lambda: commits(reader, "none", 7), "a commit")
    finally:
        reader.close()


def commits(reader: confluent_kafka.Consumer, topic: str, offset: int) -> bool:
    """False while the group's coordinator is on its way."""
    try:
        place = confluent_kafka.TopicPartition(topic, 0, offset)
        reader.commit(offsets=[place], asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    return True


def transact(broker: ServerProcess) -> None:
    """One transaction that is committed, one that is aborted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
    )
    producer.init_transactions(WAIT_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("none", b"in it", partition=0)
        producer.flush(WAIT_S)
        end(WAIT_S)


def verified(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    status = main(["dump-log", "--verify", "-J", str(data_dir)])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, ""), captured.out
    return {found["log"]: found for found in map(json.loads, captured.out.splitlines())}


def explained(broker: ServerProcess, offset: int, capsys: pytest.CaptureFixture[str]) -> str:
    main(["explain", f"none/0/{offset}", "-b", broker.bootstrap, "-o", "json"])
    return str(json.loads(capsys.readouterr().out)["visible"])


def test_a_log_of_our_broker_is_sound(
    make_broker: MakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker().start()
    write(broker)
    running = verified(broker.data_dir, capsys)  # nothing is written just now
    broker.stop()
    found = verified(broker.data_dir, capsys)
    assert {name: running[name]["records"] for name in running} == {
        name: found[name]["records"] for name in found
    }
    assert {found[f"{codec}-0"]["records"] for codec in CODECS} == {COUNT}
    segments = found["none-0"]["segments"]
    assert isinstance(segments, int)
    assert segments > 1


@pytest.mark.java
def test_a_log_of_apache_kafka_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    with KafkaBroker() as broker:
        write(broker)
        transact(broker)
        # The marker comes after the answer that ends a transaction.
        eventually(lambda: "marker" in explained(broker, COUNT + 3, capsys), "the last marker")
        assert [explained(broker, COUNT + at, capsys) for at in range(4)] == [
            "to every consumer",
            "to no application: it is the marker of a transaction's end",
            "to consumers that read uncommitted records too: its transaction was aborted",
            "to no application: it is the marker of a transaction's end",
        ]
        broker.stop()
        found = verified(broker.data_dir, capsys)
        assert {found[f"{codec}-0"]["records"] for codec in CODECS[1:]} == {COUNT}
        # Two records in transactions, and the markers that ended them.
        assert found["none-0"]["records"] == COUNT + 4
        log = broker.data_dir / "none-0"
        (aborted,) = (path for path in log.glob("*.txnindex") if path.stat().st_size)
        assert main(["dump-log", "-J", str(aborted)]) == 0
        (entry,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert entry["first_offset"] == COUNT + 2
