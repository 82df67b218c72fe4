"""`kbroker explain` of records on a real broker: seen, deleted, compacted, not there yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.explain import TO_ALL
from kbroker.cli.main import main
from kbroker.testing import Broker
from tests.support.record_batches import parse_batches

WAIT_S = 30.0
COUNT = 40
Explain = Callable[..., tuple[int, Any]]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    def asked(broker: Broker, record: str) -> tuple[int, Any]:
        status = main(["explain", record, "-b", broker.bootstrap, "-o", "json"])
        return status, json.loads(capsys.readouterr().out)

    return asked


def write(broker: Broker, topic: str, count: int, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(WAIT_S)
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.bootstrap, "enable.idempotence": True,
        "compression.type": "zstd", "linger.ms": 50,
    })  # fmt: skip
    for number in range(count):
        producer.produce(topic, b"value %d " % number + b"." * 500, b"%d" % (number % 4))
    assert producer.flush(WAIT_S) == 0


def test_each_answer_has_its_reason(explain: Explain) -> None:
    with Broker() as broker:
        write(broker, "words", COUNT)
        status, answer = explain(broker, "words/0/7")
        assert (status, answer["visible"]) == (0, TO_ALL)
        assert answer["log"] == {"start": 0, "last_stable": COUNT, "high_watermark": COUNT}
        assert answer["leader"]["in_sync"] == [answer["leader"]["broker"]]
        assert answer["content"]["key_bytes"] == 1
        assert answer["batch"]["first"] <= 7 <= answer["batch"]["last"]
        assert answer["batch"]["codec"] == "zstd"
        assert answer["producer"]["sequence"] == answer["batch"]["first"]

        # Where it is said to lie, there it lies.
        data = Path(answer["segment"]["file"]).read_bytes()[answer["segment"]["position"] :]
        (first, *_) = parse_batches(data)
        assert first.base_offset == answer["batch"]["first"]

        status, answer = explain(broker, f"words/0/{COUNT}")
        assert status == 1
        assert answer["visible"].startswith("to no consumer yet: the high watermark is 40")

        where = confluent_kafka.TopicPartition("words", 0, 10)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_records([where])[where].result(WAIT_S)
        status, answer = explain(broker, "words/0/9")
        assert (status, answer["visible"]) == (1, "to no consumer: records below 10 were deleted")
        assert explain(broker, "words/0/10")[0] == 0


def test_a_record_that_was_compacted(explain: Explain) -> None:
    with Broker() as broker:
        write(broker, "latest", COUNT, **{"cleanup.policy": "compact"})
        broker.compact()
        status, answer = explain(broker, "latest/0/3")
        assert status == 1
        assert answer["visible"].startswith("to no consumer: it was compacted; the next record is ")
        assert explain(broker, f"latest/0/{COUNT - 1}")[0] == 0


def test_for_people_it_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        write(broker, "words", COUNT)
        assert main(["explain", "words/0/7", "-b", broker.bootstrap]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "words/0/7"
        assert [line.split()[0] for line in lines[1:]] == [
            "leader", "log", "segment", "batch", "producer", "content", "visible",
        ]  # fmt: skip
        assert "replicas" in lines[1] and "in sync" in lines[1]

        for record, says in (
            ("words/0", "names no record"),
            ("words/0/-1", "names no record"),
            ("words/7/0", "has partitions 0-0, not 7"),
            ("nowhere/0/0", "nowhere"),
        ):
            assert main(["explain", record, "-b", broker.bootstrap]) in (1, 2)
            assert says in capsys.readouterr().err
