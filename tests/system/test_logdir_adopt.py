"""`kbroker logdir adopt` over what Apache Kafka left: the same records, and brokers that go on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.log.engine.checkpoints import CLEANER_FILE, RECOVERY_POINT_FILE, read_offsets
from kbroker.log.looking.dump import SegmentFile, base_offset_of
from kbroker.metadata.image import NO_CONFIGS
from kbroker.peer.client import Client
from kbroker.peer.transactions import Transactions
from kbroker.testing.broker import Broker
from kbroker.testing.process import ServerProcess
from kbroker.types import TopicPartition
from tests.support.kafka import KafkaBroker
from tests.support.read_topic import EOF_AT_ONCE
from tests.system.test_dump_log import CODECS, COUNT, WAIT_S, transact, write
from tests.system.test_kafka_reads_our_files import dump
from tests.unit.metadata.transfer.foreign import contents
from tests.unit.net.harness import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

DELETED_TO = 100
GROUP, COMMITTED = "g", 7  # by `write`

OVER = {"t": "CompleteAbort", "open": "CompleteAbort"}

# Offset, timestamp and its type, key, value.
Read = list[tuple[int | None, tuple[int, int], bytes | None, bytes | None]]


def everything(server: ServerProcess, topic: str) -> Read:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": server.bootstrap, "group.id": "reader", "check.crcs": True,
        "enable.auto.commit": False, **EOF_AT_ONCE, "isolation.level": "read_committed",
    })  # fmt: skip
    try:
        where = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
        consumer.assign([where])
        found: Read = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.timestamp(), message.key(), message.value()))
    finally:
        consumer.close()


def ids(server: ServerProcess) -> dict[str, object]:
    with Client(server.bootstrap) as client:
        return {name: client.metadata([name]).topics[name].topic_id for name in CODECS}


def leader_epoch(server: ServerProcess, topic: str) -> int:
    with Client(server.bootstrap) as client:
        return client.metadata([topic]).topics[topic].partitions[0].leader_epoch


def adopt(kafka: ServerProcess, ours: ServerProcess, *words: str) -> int:
    where = ["logdir", "adopt", str(kafka.data_dir), "--data-dir", str(ours.data_dir)]
    return main([*where, *words])


def test_topics_of_apache_kafka_go_on_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = Broker(data_dir=tmp_path / "data")
    with ours:
        ours.stop()
        with KafkaBroker({"offsets.topic.num.partitions": 5}) as kafka:
            write(kafka)
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            first = confluent_kafka.TopicPartition(CODECS[0], 0, DELETED_TO)
            for done in admin.delete_records([first]).values():
                done.result(WAIT_S)
            kafka.stop()
            kafka.start()  # in another leader epoch
            wanted = {topic: everything(kafka, topic) for topic in CODECS}
            known, epoch = ids(kafka), leader_epoch(kafka, CODECS[0])
            assert epoch > 0
            assert adopt(kafka, ours) == 5
            assert "is in use -> stop the broker" in capsys.readouterr().err
            kafka.stop()
            before = contents(kafka.data_dir)
            assert adopt(kafka, ours, "-o", "json") == 0
            adopted = {each["topic"]: each for each in json.loads(capsys.readouterr().out)}
            assert adopted.keys() == {*CODECS}
            assert adopt(kafka, ours, "--groups") == 0
            assert "__consumer_offsets: 5 partitions\n" in capsys.readouterr().out
            assert contents(kafka.data_dir) == before
        assert [adopted[CODECS[0]][end] for end in ("start_offset", "end_offset")] == [
            DELETED_TO, COUNT
        ]  # fmt: skip
        ours.start()
        assert {topic: everything(ours, topic) for topic in CODECS} == wanted
        assert ids(ours) == known
        assert leader_epoch(ours, CODECS[0]) > epoch
        reader = confluent_kafka.Consumer({"bootstrap.servers": ours.bootstrap, "group.id": GROUP})
        (committed,) = reader.committed([confluent_kafka.TopicPartition(CODECS[0], 0)], WAIT_S)
        reader.close()
        assert committed.offset == COMMITTED
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": ours.bootstrap, "enable.idempotence": True}
        )
        for topic in CODECS:
            producer.produce(topic, b"ours", partition=0)
        assert producer.flush(WAIT_S) == 0
        for topic in CODECS:
            *before_it, last = everything(ours, topic)
            assert before_it == wanted[topic]
            assert (last[0], last[3]) == (COUNT, b"ours")
        assert main(["config", "get", "-t", CODECS[0], "retention.ms", "-b", ours.bootstrap]) == 0
        assert "-1" in capsys.readouterr().out


# --- Compacted there ------------------------------------------------------------------------------

PRICES = TopicPartition("prices", 0)
# Records of a kilobyte, in segments of a megabyte: of each segment's the last ones are superseded,
# and too much stays for two of them in one.
COUNT_IN_ONE, STAYING, WRITTEN = 1_000, 600, 4_500


def create(kafka: ServerProcess, topic: str, settings: Mapping[str, str] = NO_CONFIGS) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1, config={**settings})]).values():
        made.result(WAIT_S)


def produce(kafka: ServerProcess, *keys: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 50}
    )
    for number, key in enumerate(keys):
        producer.produce(PRICES.topic, b"%d " % number + b"x" * 1_000, key, partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def in_order(log: Path) -> list[Path]:
    return sorted(log.glob("*.log"))


def is_clean(data_dir: Path) -> bool:
    """Whether all but the active segment was compacted, and nothing is on its way."""
    log = data_dir / str(PRICES)
    begun = (data_dir / CLEANER_FILE).stat().st_size > 0
    cleaned_to = read_offsets(data_dir / CLEANER_FILE).get(PRICES, 0) if begun else 0
    under_way = [path for path in log.iterdir() if path.suffix in (".cleaned", ".swap")]
    return cleaned_to == base_offset_of(in_order(log)[-1]) > 0 and not under_way


def gaps(log: Path) -> int:
    """How many segments end below the next one's beginning."""
    found = 0
    for path, following in pairwise(in_order(log)):
        with SegmentFile(path) as segment:
            ends = [batch.last_offset + 1 for batch in segment.headers()]
        found += ([segment.base_offset, *ends])[-1] < base_offset_of(following)
    return found


def compacted(kafka: ServerProcess) -> None:
    create(kafka, PRICES.topic, {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1 << 20), "segment.ms": "60000",
    })  # fmt: skip
    numbers = range(WRITTEN)
    produce(kafka, *(f"{n if n % COUNT_IN_ONE < STAYING else n % 10}" for n in numbers))
    eventually(lambda: is_clean(kafka.data_dir), "a compaction")


def begin(kafka: ServerProcess) -> confluent_kafka.Producer:
    """A transaction that is open when its broker ends."""
    producer = confluent_kafka.Producer({
        "bootstrap.servers": kafka.bootstrap, "transactional.id": "open",
        "transaction.timeout.ms": 900_000, "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("none", b"never", partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def states(ours: ServerProcess) -> dict[str, str]:
    with Client(ours.bootstrap) as client:
        found = Transactions(client).list_transactions()
    return {each.transaction.transactional_id: each.transaction.state for each in found}


def check_by_apache_kafka(log: Path) -> None:
    """Its tool reads the copy: three markers, and two aborted transactions in the index."""
    kinds = ("log", "txnindex", "snapshot")
    files = [str(max(log.glob(f"*.{kind}"))) for kind in kinds]
    printed = dump("--deep-iteration", "--files", ",".join(files))
    assert "isvalid: false" not in printed
    assert re.findall(r"endTxnMarker: (\w+)", printed) == ["COMMIT", "ABORT", "ABORT"]
    assert re.findall(r"firstOffset: (\d+) lastOffset: (\d+) lastStable", printed) == [
        ("2", "3"), ("4", "5")
    ]  # fmt: skip
    assert set(re.findall(r"currentTxnFirstOffset: (\S+)", printed)) == {"OptionalLong.empty"}


def test_compacted_logs_of_apache_kafka_and_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed or stopped, and whatever happens here afterwards."""
    what = ["-t", PRICES.topic, "-c", "cleanup.policy=compact"]
    settings = {"log.cleaner.backoff.ms": 100, "transaction.state.log.num.partitions": 3}
    with KafkaBroker(settings) as kafka:
        compacted(kafka)
        create(kafka, "none")
        transact(kafka)
        left_open = begin(kafka)
        wanted = {topic: everything(kafka, topic) for topic in (PRICES.topic, "none")}
        assert len(wanted[PRICES.topic]) < WRITTEN
        assert [value for *_, value in wanted["none"]] == [b"in it"]
        for end in (kafka.kill9, kafka.stop):
            if not kafka.alive:
                kafka.start()
            end()
            assert gaps(kafka.data_dir / str(PRICES)) > 0
            before = contents(kafka.data_dir)
            with Broker(data_dir=tmp_path / end.__name__) as ours:
                ours.stop()
                assert adopt(kafka, ours, *what) == 0, capsys.readouterr().err
                assert "prices: 1 partition\n" in capsys.readouterr().out
                assert adopt(kafka, ours, "--transactions") == 0, capsys.readouterr().err
                said = capsys.readouterr().out
                assert "__transaction_state: 3 partitions\n" in said
                assert "  none-0: the transaction of 'open' (producer id " in said
                assert " that is open from offset 4 on is aborted at offset 5\n" in said
                assert contents(kafka.data_dir) == before
                assert gaps(ours.data_dir / str(PRICES)) == 0
                if end == kafka.stop:
                    check_by_apache_kafka(ours.data_dir / "none-0")
                ours.start()
                assert {topic: everything(ours, topic) for topic in wanted} == wanted
                eventually(lambda: states(ours) == OVER, "the end of the open transaction")
                ours.kill9()
                (ours.data_dir / RECOVERY_POINT_FILE).unlink()
                ours.start()
                assert {topic: everything(ours, topic) for topic in wanted} == wanted
        del left_open
