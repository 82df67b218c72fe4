"""Topics of another broker, Apache Kafka's say, with which a broker without a cluster goes on.

Place in the flow: `kbroker logdir adopt`, with both brokers stopped: the locks of their directories
are held throughout. Everything is looked at before anything is copied, and everything is copied
before anything has its name; the topics become known last, each at once. A kill in between leaves
logs of no topic, which the next start sets aside. A topic is as its logs know it: its id, its
partitions, and leader epochs that go on after theirs. Producer ids that they know are not handed
out again. Transactions that are open in them end with the copy (`log/adopted_ends.py`). What is not
in the files, its settings, is the caller's to say; until they are set, nothing of it is too old or
too much.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from kbroker.errors import DataDirectoryError, KafkaError, UsageError
from kbroker.log import adopted
from kbroker.log.adopted import Copied, ForeignLog
from kbroker.log.adopted_ends import Ends
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.metadata import meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.image import (
    INTERNAL_TOPICS,
    NO_CONFIGS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicImage,
)
from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    MetadataStore,
    NoNodeError,
    StoreError,
)
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.record_batch import Record

# Of Apache Kafka's own workings; what groups have committed, and transactional ids, are adopted
# where they are asked for.
OWN_TOPICS: Final = INTERNAL_TOPICS | {"__cluster_metadata", "__remote_log_metadata"}
_OWN_CONFIGS: Final = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600",
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact", "compression.type": "uncompressed",
        "min.insync.replicas": "1", "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}  # fmt: skip
_NOTHING_GOES: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
# Clients of the other broker may have ids that no log knows, since they are idle.
PRODUCER_IDS_LEFT_OUT: Final = 10_000

Logs = Mapping[TopicPartition, ForeignLog]


class Ids(Ends, Protocol):
    """Transactional ids of the other broker, read from its log of them."""

    def read(self, partition: int, record: Record) -> None: ...
    def misplaced(self, partitions: int) -> str | None: ...
    @property
    def producer_id(self) -> int: ...


class Own(NamedTuple):
    """Which of Apache Kafka's own topics are adopted: groups' offsets, transactional ids."""

    groups: bool = False
    transactions: bool = False

    @property
    def topics(self) -> list[str]:
        wanted = ((OFFSETS_TOPIC, self.groups), (TRANSACTIONS_TOPIC, self.transactions))
        return [topic for topic, is_wanted in wanted if is_wanted]


NO_OWN_TOPICS: Final = Own()


class Adoption:
    """Into the data directory of one broker, the first of its log.dirs."""

    def __init__(
        self,
        directory: Path,
        boot_id: str,
        ids: Ids,
        now_ms: int,
        configs: Mapping[str, str] = NO_CONFIGS,
        of_topics: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """`configs`: what all topics that are adopted set for themselves, but for Kafka's own;
        checked already. `of_topics`: settings of topics by name, where they are known.
        `boot_id`: of the machine. `ids`: those of this adoption, none yet."""
        self._directory = directory
        self._boot_id = boot_id
        self._ids = ids
        self._now_ms = now_ms
        self._configs = {**_NOTHING_GOES, **configs}
        self._of_topics = of_topics

    def run(
        self, sources: Sequence[Path], topics: Collection[str] = (), own: Own = NO_OWN_TOPICS
    ) -> list[Copied]:
        """The logs that were adopted: of these topics, or of all there but Kafka's own and those
        that are here; and those of `own`. UserError says why nothing was."""
        try:
            _check_places([*sources, self._directory])
            with ExitStack() as held:
                for source in sources:
                    held.enter_context(adopted.unused(source))
                _check_brokers(sources)
                store = held.enter_context(closing(self._opened()))
                return self._adopt(store, sources, frozenset(topics), own)
        except (OSError, StoreError, KafkaError, ValueError) as error:
            raise DataDirectoryError(f"nothing was adopted: {error}") from error

    def _opened(self) -> EmbeddedStore:
        if not (self._directory / DATABASE_FILE).is_file():
            raise DataDirectoryError(
                f"there is no metadata store in {self._directory}",
                "start the broker there once and stop it; brokers at a ZooKeeper cannot adopt",
            )
        return EmbeddedStore.open(self._directory)

    def _adopt(
        self, store: MetadataStore, sources: Sequence[Path], topics: frozenset[str], own: Own
    ) -> list[Copied]:
        ours = self._ours(store)
        here = _topics_here(store)
        logs = _found(sources, topics, own, here)
        _check_unknown(store, here, logs)
        self._read_ids(sources, own)
        for log in logs.values():
            adopted.check(log)
        by_topic: dict[str, list[ForeignLog]] = defaultdict(list)
        for _, log in sorted(logs.items()):
            by_topic[log.name.topic].append(log)
        images = [self._image(ours.node_id, topic, some) for topic, some in by_topic.items()]
        for image in images:
            _check_size(image)
        return self._taken(ours, logs, images)

    def _read_ids(self, sources: Sequence[Path], own: Own) -> None:
        logs = _logs_of(sources, lambda topic: topic == TRANSACTIONS_TOPIC)
        for name, log in logs.items():
            for record in adopted.records_of(log):
                self._ids.read(name.partition, record)
        misplaced = self._ids.misplaced(len(logs)) if own.transactions else None
        if misplaced is not None:
            raise UsageError(
                f"'{misplaced}' is not where {TRANSACTIONS_TOPIC} with {len(logs)} partitions has"
                " it: some are not there",
                "name all directories of that broker, and one that has all of them",
            )

    def _ours(self, store: MetadataStore) -> _Ours:
        own = meta_properties.load(self._directory)
        try:
            node = store.get(records.CONTROLLER_EPOCH)
        except NoNodeError:
            own = None
        if own is None:
            raise DataDirectoryError(
                f"{self._directory} belongs to no broker yet", "start it there once and stop it"
            )
        epoch = records.decode_controller_epoch(records.CONTROLLER_EPOCH, node.data)
        fence = Check(records.CONTROLLER_EPOCH, node.version)
        return _Ours(store, MetadataNodes(store, fence, epoch), own.node_id)

    def _image(self, node_id: int, topic: str, logs: Sequence[ForeignLog]) -> TopicImage:
        configs = self._of_topics.get(topic, _OWN_CONFIGS.get(topic, self._configs))
        return new_topic_image(topic, logs[0].topic_id, [(node_id,)] * len(logs), configs)

    def _taken(self, ours: _Ours, logs: Logs, images: Sequence[TopicImage]) -> list[Copied]:
        directory = DataDirectory(self._directory, self._boot_id)
        directory.open()
        with ExitStack() as last:
            last.callback(directory.give_back)
            last.callback(adopted.remove_left_over, self._directory)
            adopted.remove_left_over(self._directory)
            self._check_room(directory, logs)
            copies = [
                adopted.copied(log, self._directory, self._ids, self._now_ms)
                for _, log in sorted(logs.items())
            ]
            try:
                copies = adopted.placed(copies, directory)
                in_logs = max(each.producer_id for each in copies)
                ours.leave_out_producer_ids(max(in_logs, self._ids.producer_id))
                for image in images:
                    ours.nodes.create_topics([_led(image, copies)])
            except BaseException as error:
                there = {image.name for image in images if ours.may_know(image.name)}
                adopted.undone([each for each in copies if each.name.topic not in there], directory)
                if there and isinstance(error, Exception):
                    raise DataDirectoryError(
                        f"only {', '.join(sorted(there))} was adopted: {error}",
                        "adopt again: what is here is left out",
                    ) from error
                raise
        return copies

    def _check_room(self, directory: DataDirectory, logs: Logs) -> None:
        if there := directory.logs().keys() & logs.keys():
            raise DataDirectoryError(
                f"{self._directory / str(min(there))} is there already",
                "it belongs to no topic: move it away",
            )
        needed = sum(log.size_bytes for log in logs.values())
        if needed > (free := shutil.disk_usage(self._directory).free):
            raise DataDirectoryError(
                f"the logs have {needed:,} bytes, and {self._directory} has room for {free:,}",
                "make room, or name fewer topics with --topic",
            )


class _Ours(NamedTuple):
    """What the broker that adopts knows, and what writes it."""

    store: MetadataStore
    nodes: MetadataNodes
    node_id: int

    def may_know(self, topic: str) -> bool:
        """True also where the store does not say."""
        try:
            return self.store.exists(records.topic_path(topic))
        except StoreError:
            return True

    def leave_out_producer_ids(self, highest: int) -> None:
        path, first = records.PRODUCER_ID_BLOCK, 0
        with suppress(NoNodeError):
            first = records.decode_producer_id_block(path, self.store.get(path).data)
        if (count := highest + PRODUCER_IDS_LEFT_OUT - first) > 0:
            self.nodes.take_producer_ids(self.node_id, count)


def _led(image: TopicImage, copies: Iterable[Copied]) -> TopicImage:
    """By us, in an epoch after those of its logs."""
    epochs = {copy.name: copy.leader_epoch + 1 for copy in copies}
    return replace(
        image,
        partitions=tuple(
            replace(each, leader_epoch=epochs[TopicPartition(each.topic, each.index)])
            for each in image.partitions
        ),
    )


# --- What is refused ------------------------------------------------------------------------------


def _check_places(directories: Sequence[Path]) -> None:
    known: set[Path] = set()
    for directory in directories:
        if directory.resolve() in known:
            raise UsageError(f"{directory} is named twice", "name each directory once")
        known.add(directory.resolve())


def _check_brokers(sources: Sequence[Path]) -> None:
    brokers: dict[tuple[str, int], Path] = {}
    for source in sources:
        if (found := meta_properties.load(source)) is not None:
            brokers.setdefault((found.cluster_id, found.node_id), source)
    if len(brokers) > 1:
        raise UsageError(
            f"{' and '.join(map(str, brokers.values()))} are of different brokers",
            "name directories of one broker",
        )


def _topics_here(store: MetadataStore) -> dict[str, UUID]:
    return {
        topic: records.decode_topic(records.topic_path(topic), node.data).topic_id
        for topic, node in store.children_data(records.TOPICS).items()
    }


def _found(
    sources: Sequence[Path], topics: frozenset[str], own: Own, here: Mapping[str, UUID]
) -> Logs:
    """What is to be adopted; UsageError where that cannot be."""
    if named := topics & OWN_TOPICS:
        raise UsageError(
            f"{min(named)} is of Apache Kafka's own workings",
            "leave it out; --groups adopts what groups have committed, --transactions transactional"
            " ids",
        )

    def looked_at(topic: str) -> bool:
        if topic in OWN_TOPICS:
            return topic in own.topics
        return own.groups or not topics or topic in topics

    def wanted(log: ForeignLog) -> bool:
        topic = log.name.topic
        if topic in OWN_TOPICS:
            return True
        return topic in topics if topics else here.get(topic) != log.topic_id

    there = _logs_of(sources, looked_at)
    found = {name: log for name, log in there.items() if wanted(log)}
    names = {name.topic for name in found} | topics
    for topic in sorted(names.union(own.topics)):
        _check_topic(topic, [log for name, log in sorted(found.items()) if name.topic == topic])
    if not found:
        raise UsageError(
            f"no topic in {', '.join(map(str, sources))} is new here",
            "name a directory of a broker's log.dirs",
        )
    for name, log in there.items():
        if own.groups and name not in found and here.get(name.topic) != log.topic_id:
            raise UsageError(
                f"what groups have committed for {name.topic} would be lost with --groups",
                "adopt that topic too, or before",
            )
    return found


def _logs_of(
    sources: Sequence[Path], looked_at: Callable[[str], bool]
) -> dict[TopicPartition, ForeignLog]:
    found: dict[TopicPartition, ForeignLog] = {}
    for source in sources:
        for name, log in adopted.logs_of(source, looked_at).items():
            if name in found:
                raise UsageError(
                    f"the log of {name} is in {found[name].path} and {log.path}",
                    "name directories of one broker",
                )
            found[name] = log
    return found


def _check_topic(topic: str, logs: Sequence[ForeignLog]) -> None:
    if (reason := invalid_topic_name(topic)) is not None:
        raise UsageError(reason)
    if not logs:
        raise UsageError(f"topic {topic} is not there")
    for index, log in enumerate(logs):
        if log.name.partition != index:
            raise UsageError(
                f"{topic}-{index} is not there, and {log.name} is",
                "name all directories of that broker, and one that has all of the topic's replicas",
            )
        if log.topic_id != logs[0].topic_id:
            raise UsageError(f"{logs[0].path} and {log.path} are of two topics of that name")


def _check_unknown(store: MetadataStore, here: Mapping[str, UUID], logs: Logs) -> None:
    names = {topic_id: topic for topic, topic_id in here.items()}
    for topic_id, topic in {log.topic_id: name.topic for name, log in logs.items()}.items():
        if topic == OFFSETS_TOPIC and topic in here:
            raise UsageError("groups have committed here already", "leave --groups out")
        if topic == TRANSACTIONS_TOPIC and topic in here:
            raise UsageError("there are transactional ids here already", "leave --transactions out")
        if topic in here:
            raise UsageError(f"topic {topic} exists", "delete it, or leave the other out")
        if topic_id in names:
            raise UsageError(f"{topic} is here already, as topic {names[topic_id]}")
        if store.exists(records.tombstone_path(topic_id)):
            raise UsageError(
                f"{topic} was deleted here, and its delete is not finished",
                "start the broker once and stop it",
            )


def _check_size(topic: TopicImage) -> None:
    """A topic is made at once, or a crash would leave partitions without their leader epochs."""
    name, last = topic.name, replace(topic.partitions[-1], leader_epoch=records.INT32_MAX)
    replicas = [each.replicas for each in topic.partitions]
    of_all = (
        Create(records.topic_path(name), records.encode_topic(topic.topic_id, replicas)),
        Create(records.partitions_path(name)),
        Create(records.topic_config_path(name), records.encode_configs(topic.configs)),
        Check(records.CONTROLLER_EPOCH, 0),
    )
    of_each = (
        Create(records.partition_path(name, last.index)),
        Create(
            records.partition_state_path(name, last.index),
            records.encode_partition(last, records.INT32_MAX),
        ),
    )
    size_bytes = sum(node.size_bytes for node in of_all)
    size_bytes += len(replicas) * sum(node.size_bytes for node in of_each)
    if size_bytes > MULTI_BYTES_MAX:
        raise UsageError(
            f"topic {name} has {len(replicas):,} partitions, more than can be made at once",
            "leave it out with --topic",
        )
