"""Apache Kafka's DumpLogSegments over the files of a log: batches, both indexes, snapshots.

The tool recomputes every CRC, unpacks every record, and compares each index entry with the batch
that it points at. It prints a file as Apache Kafka would read it.
"""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import kafka_classes
from tests.support.led_log import open_led_log
from tests.support.record_batches import CODECS, Record, build_batch
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.java

BATCHES = 150


def dump(*arguments: str) -> str:
    ran = subprocess.run(
        kafka_classes.command("org.apache.kafka.tools.DumpLogSegments", *arguments, log="info"),
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr  # where it says what does not fit


@pytest.fixture
def log_files(tmp_path: Path) -> Path:
    settings = {"segment_bytes": 15_000, "index_interval_bytes": 500}
    path = tmp_path / "words-0"
    log = open_led_log(path, "words", 0, uuid.UUID(int=1), settings)
    log.set_leadership(1, True, 3, 1)
    for number in range(BATCHES):
        records = [
            Record(b"x" * 40 * (1 + number % 7), b"key", 1_000 + number * 3 + number * 7 % 50,
                   [(b"header", b"1")])
            for _ in range(1 + number % 4)
        ]  # fmt: skip
        codec = list(CODECS)[number % len(CODECS)]
        log.append(
            build_batch(
                records, codec=codec, producer_id=1_000 + number, producer_epoch=2, base_sequence=7
            )
        )
    log.close()
    return path


def test_segments_indexes_and_snapshots(log_files: Path) -> None:
    names = [
        str(file)
        for suffix in ("log", "index", "timeindex", "snapshot")
        for file in sorted(log_files.glob(f"*.{suffix}"))
    ]
    assert len(list(log_files.glob("*.log"))) >= 3
    printed = dump("--deep-iteration", "--files", ",".join(names))
    assert len(re.findall(r"isvalid: true", printed)) == BATCHES
    assert "isvalid: false" not in printed
    assert not re.search(r"mismatch|corrupt|not found|out of order|exception", printed, re.I)
    assert len(re.findall(r"producerId: 1\d\d\d producerEpoch: 2 ", printed)) >= BATCHES
    assert len(re.findall(r"^\| offset: ", printed, re.M)) == sum(
        1 + number % 4 for number in range(BATCHES)
    )
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", printed)) == {"3"}
    assert {name.lower() for name in re.findall(r"compresscodec: (\w+)", printed)} == set(CODECS)


def test_the_tools_own_check_of_the_index(log_files: Path) -> None:
    names = ",".join(str(file) for file in sorted(log_files.glob("*.index")))
    printed = dump("--index-sanity-check", "--files", names)
    assert printed.count("passed sanity check") == len(list(log_files.glob("*.index")))


def test_the_records_of_groups(make_broker: MakeBroker) -> None:
    """What a group with a member wrote, read by the tool's decoder of `__consumer_offsets`."""
    broker = make_broker({"offsets.topic.num.partitions": 1}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        done.result()
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "readers", "client.id": "cli",
        "group.instance.id": "i-1", "enable.auto.commit": False,
        # The session outlives what is done between the member's end and the broker's.
        "session.timeout.ms": 57_000, "max.poll.interval.ms": 59_000,
    })  # fmt: skip
    consumer.subscribe(["orders"])
    eventually(lambda: consumer.poll(0.05) is None and consumer.assignment(), "an assignment")
    offsets = [TopicPartition("orders", 0, 7, metadata="a note")]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()  # a static member stays
    simple = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "simple"})
    simple.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    simple.close()
    for done in admin.delete_consumer_groups(["simple"]).values():
        done.result()
    broker.stop()
    file = broker.data_dir / "__consumer_offsets-0" / f"{0:020d}.log"
    dumped = dump("--offsets-decoder", "--files", str(file))
    assert "isvalid: false" not in dumped
    records = [
        (json.loads(key), None if payload == "<DELETE>" else json.loads(payload))
        for key, payload in re.findall(r" key: (\{.*\}) payload: (.*)$", dumped, re.MULTILINE)
    ]
    written: dict[str, Any] = {json.dumps(key, sort_keys=True): p for key, p in records}
    group = written[json.dumps({"type": "2", "data": {"group": "readers"}}, sort_keys=True)]
    assert (group["version"], group["data"]["protocolType"]) == ("3", "consumer")
    (member,) = group["data"]["members"]
    assert member["groupInstanceId"] == "i-1"
    assert (member["clientId"], member["clientHost"]) == ("cli", "/127.0.0.1")
    assert (member["rebalanceTimeout"], member["sessionTimeout"]) == (59_000, 57_000)
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0]}]
    committed = {"group": "readers", "topic": "orders", "partition": 0}
    offset = written[json.dumps({"type": "1", "data": committed}, sort_keys=True)]
    assert offset["version"] == "4"
    assert (offset["data"]["offset"], offset["data"]["metadata"].rstrip("\0")) == (7, "a note")
    gone = {"type": "1", "data": {**committed, "group": "simple"}}
    assert written[json.dumps(gone, sort_keys=True)] is None
    tombstone = {"type": "2", "data": {"group": "simple"}}
    assert written[json.dumps(tombstone, sort_keys=True)] is None


def test_transactions(make_broker: MakeBroker) -> None:
    """Markers, the index of aborted transactions, the producers of a stop, and the decoder of
    `__transaction_state`."""
    broker = make_broker({"transaction.state.log.num.partitions": 1}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        done.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "biller"})
    producer.init_transactions(30)
    for is_committed in (True, False, True):
        producer.begin_transaction()
        producer.produce("orders", b"v", partition=0)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)
    broker.stop()
    orders = broker.data_dir / "orders-0"
    files = [f"{0:020d}.log", f"{0:020d}.txnindex", f"{6:020d}.snapshot"]
    printed = dump("--deep-iteration", "--files", ",".join(str(orders / each) for each in files))
    assert "isvalid: false" not in printed
    assert re.findall(r"endTxnMarker: (\w+)", printed) == ["COMMIT", "ABORT", "COMMIT"]
    assert (
        re.findall(r"isTransactional: (\w+) isControl: (\w+)", printed)
        == [
            ("true", "false"),
            ("true", "true"),
        ]
        * 3
    )
    (aborted,) = re.findall(r"version: 0 producerId: \d+ (.*)", printed)
    assert aborted == "firstOffset: 2 lastOffset: 3 lastStableOffset: 4"
    batches = re.findall(r"currentTxnFirstOffset: (\S+)", printed)  # of the one producer
    assert batches == ["OptionalLong.empty"] * 3
    state = broker.data_dir / "__transaction_state-0" / f"{0:020d}.log"
    printed = dump("--transaction-log-decoder", "--files", str(state))
    assert "isvalid: false" not in printed
    values = [json.loads(each) for each in re.findall(r" payload: (\{.*\})$", printed, re.M)]
    assert [each["data"]["transactionStatus"] for each in values] == [0, 1, 2, 4, 1, 3, 5, 1, 2, 4]
    assert {
        json.loads(each)["data"]["transactionalId"]
        for each in re.findall(r" key: (\{.*?\}) payload", printed)
    } == {"biller"}
