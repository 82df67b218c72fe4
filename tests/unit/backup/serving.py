"""A broker's data directory as plain files, and a broker that answers from a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from kbroker.backup.create import Backup, Created, Wanted
from kbroker.backup.opened_backup import OpenedBackup, open_backup
from kbroker.backup.questions import CommittedOffset, Ends, Led
from kbroker.backup.saved_metadata import read_embedded
from kbroker.clock import ManualClock
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE, write_partition_metadata
from kbroker.metadata import meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.controller.acl_records import ACL_FOLDERS
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition
from tests.unit.metadata.transfer.foreign import batch

CLUSTER, NODE = "td1oS7a7TU-n3josdqba8w", 7
ORDERS, PRICES, IDS = UUID(int=41), UUID(int=42), UUID(int=43)
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRICES_0 = TopicPartition("prices", 0)
TOPICS = {"orders": (ORDERS, 2), "prices": (PRICES, 1)}
SCRAM = "salt=AAAA,stored_key=BBBB,server_key=CCCC,iterations=4096"
ACL = f"{ACL_FOLDERS[3]}/orders"
NODES = {
    records.topic_config_path("orders"): records.encode_configs({"retention.ms": "5000"}),
    records.topic_config_path("prices"): records.encode_configs({"cleanup.policy": "compact"}),
    "/config/users/alice": records.encode_configs(
        {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "1024", "unknown": "secret"}
    ),
    "/config/users/bob": records.encode_configs({"SCRAM-SHA-512": SCRAM}),
    "/config/ips/192.0.2.1": records.encode_configs({"connection_creation_rate": "3"}),
    "/config/groups/g": records.encode_configs({"consumer.heartbeat.interval.ms": "9000"}),
    "/config/brokers/7": records.encode_configs({"ssl.key.password": "secret"}),
    "/kbroker/sasl": b'{"version":1,"secret":"secret"}',
    "/delegation_token/tokens/t1": b"secret",
    ACL: b'{"version":1,"acls":[]}',
}


@dataclass
class Serving:
    """Answers as the broker would; `meanwhile` is called before each answer, by its question."""

    directory: Path
    topics: Mapping[str, tuple[UUID, int]]
    end: dict[TopicPartition, int]
    start: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    later: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: list[CommittedOffset] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cluster_id: str = CLUSTER
    led: Collection[TopicPartition] | None = None  # None: all
    hidden: Collection[str] = ()  # topics that the client may not describe

    def _ask(self, question: str) -> None:
        self.asked.append(question)
        self.meanwhile.get(question, lambda: None)()

    def led_by(self, node_id: int, topics: Collection[str]) -> Led:
        self._ask("led_by")
        partitions = {
            TopicPartition(topic, index): topic_id
            for topic, (topic_id, count) in self.topics.items()
            for index in range(count)
            if topic not in self.hidden
            and (not topics or topic in topics or topic == TRANSACTIONS_TOPIC)
            and (self.led is None or TopicPartition(topic, index) in self.led)
        }
        counts = {
            topic: count for topic, (_, count) in self.topics.items() if topic not in self.hidden
        }
        return Led(self.cluster_id, partitions if node_id == NODE else {}, 0, 3, counts)

    def committed_offsets(self, partitions: Collection[TopicPartition]) -> list[CommittedOffset]:
        self._ask("committed_offsets")
        return [each for each in self.offsets if each.partition in partitions]

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Ends:
        names = list(partitions)
        is_data = any(name.topic != TRANSACTIONS_TOPIC for name in names)
        self._ask("ends_of" if is_data else "ends_of ids")
        return Ends(
            {name: self.start.get(name, 0) for name in names},
            {name: self.end[name] for name in names},
            {name: self.stable.get(name, self.end[name]) for name in names},
        )

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._ask("high_watermarks")
        return {name: self.later.get(name, self.end[name]) for name in partitions}

    def pause(self) -> None:
        self._ask("pause")

    # --- Its files --------------------------------------------------------------------------------

    def log(self, name: TopicPartition) -> Path:
        return self.directory / str(name)

    def add(self, name: TopicPartition, base_offset: int, data: bytes) -> None:
        """To a segment, or a new one."""
        with (self.log(name) / f"{base_offset:020d}.log").open("ab") as file:
            file.write(data)

    def backup(self, target: Path, wanted: Wanted | None = None) -> Created:
        def read(scratch: Path, pause: Callable[[], None]) -> dict[str, bytes]:
            return read_embedded(self.directory, scratch, pause)

        clock = ManualClock(1_800_000_000_000)
        run = Backup(target, [self.directory], read, self, clock)
        return run.run(wanted or Wanted())

    def opened(self, target: Path, wanted: Wanted | None = None) -> OpenedBackup:
        self.backup(target, wanted)
        return open_backup(target)


def serving(
    directory: Path, topics: Mapping[str, tuple[UUID, int]] = TOPICS, batches: int = 4
) -> Serving:
    """Logs of two segments, with two batches of three records in each."""
    directory.mkdir(parents=True)
    meta_properties.ensure(directory, CLUSTER, NODE)
    with closing(EmbeddedStore.open(directory)) as store:
        ensure_skeleton(store, CLUSTER)
        for topic, (topic_id, count) in topics.items():
            store.create(
                records.topic_path(topic), records.encode_topic(topic_id, [(NODE,)] * count)
            )
        for path, data in NODES.items():
            store.ensure(path.rpartition("/")[0])
            if not store.exists(path):
                store.create(path, data)
    found = Serving(directory, topics, {})
    for topic, (topic_id, count) in topics.items():
        for index in range(count):
            name = TopicPartition(topic, index)
            found.log(name).mkdir()
            write_partition_metadata(found.log(name) / PARTITION_METADATA_FILE, topic_id)
            for number in range(batches):
                found.add(name, 6 * (number // 2), batch(3 * number, 3))
            found.end[name] = 3 * batches
    return found
