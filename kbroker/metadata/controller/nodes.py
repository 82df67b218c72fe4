"""The controller's reading and writing of metadata nodes: the whole cluster in, changes out.

Place in the flow: between `controller.py` and a `MetadataStore`, on the controller thread only.
Every write carries the fence (a check of the controller epoch's version), so a controller that has
been replaced without noticing changes nothing and gets `FencedError`.

Writes are cut into multis that fit any store. The order within them makes every cut safe: a topic's
own node comes with its configuration, its partition nodes after it (those that are added later,
too), and `load` supplies partition nodes that a crash left out; a deletion writes its tombstone
first and removes the topic's node last, and `load` finishes deletions whose tombstone it finds. So
after a crash a topic is either whole or gone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.controller.decisions import first_partition_state, new_topic_image
from kbroker.metadata.features import FinalizedFeatures
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    TopicImage,
)
from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)

log = logging.getLogger("kbroker.controller")

# Producer ids are signed 64-bit numbers on the wire.
_PRODUCER_ID_MAX: Final = records.INT64_MAX
# Errors that other topics need not have. Their causes are single: a fence has an error of its own.
_OF_ONE_TOPIC: Final = (DataDirectoryError, MultiError, NoNodeError)


class FencedError(Exception):
    """Another controller has been elected; nothing was written."""


class LoadedMetadata(NamedTuple):
    """What the store holds. `deletions` are topics that are gone but perhaps not from disk.
    `unreadable` are those that are as they were known, since a node of theirs is damaged."""

    brokers: tuple[BrokerImage, ...]
    topics: tuple[TopicImage, ...]
    unreadable: frozenset[str]
    deletions: tuple[TopicImage, ...]
    configs: Mapping[ConfigResource, Mapping[str, str]]


class MetadataNodes:
    """See the head of this file; one object per controller term."""

    def __init__(self, store: MetadataStore, fence: Check, controller_epoch: int) -> None:
        self._store = store
        self._fence = fence
        self._controller_epoch = controller_epoch

    def load(self, known: ClusterImage) -> LoadedMetadata:
        """Read everything, finishing what a crash interrupted. A topic that cannot be read, or
        whose nodes cannot be written, is as it was `known`, and does not disturb the others; so are
        settings. An error for one that was not known: logs of a topic could be taken for stray logs
        then, as those of a deleted topic may be."""
        unreadable: set[str] = set()
        left_out: set[str] = set()
        deletions = tuple(self._finish_deletions(known.topics, unreadable, left_out))
        topics = self._store.children_data(records.TOPICS)
        for name in left_out:
            topics.pop(name, None)
        configs = self._store.children_data(records.TOPIC_CONFIGS)
        loaded = tuple(self._load_topics(topics, configs, known.topics, unreadable))
        resources = load_resource_configs(self._store, known=known.configs)
        brokers = load_brokers(self._store)
        return LoadedMetadata(brokers, loaded, frozenset(unreadable), deletions, resources)

    def create_topics(self, topics: Iterable[TopicImage]) -> None:
        """Write new topics; NodeExistsError inside a MultiError if one exists already."""
        self._write(unit for topic in topics for unit in self._creation(topic))

    def add_partitions(self, grown: Iterable[tuple[TopicImage, TopicImage]]) -> None:
        """Write (before, after) of topics that have more partitions now."""
        self._write(unit for before, after in grown for unit in self._growth(before, after))

    def remove_partitions(self, undone: Iterable[tuple[TopicImage, TopicImage]]) -> None:
        """Take (before, after) back: partitions that no client could have used."""
        self._write(unit for before, after in undone for unit in self._shrinking(before, after))

    def delete_topics(self, topics: Iterable[TopicImage]) -> None:
        """Remove topics, leaving tombstones until `forget_deletions`."""
        self._write(unit for topic in topics for unit in self._deletion(topic))

    def forget_deletions(self, topics: Iterable[TopicImage]) -> None:
        """The topics' logs are gone as well: drop the tombstones."""
        self._write([[Delete(records.tombstone_path(topic.topic_id))] for topic in topics])

    def set_configs(self, topics: Iterable[TopicImage]) -> None:
        units: list[list[Operation]] = []
        for topic in topics:
            path = records.topic_config_path(topic.name)
            data = records.encode_configs(topic.configs)
            exists = self._store.exists(path)
            units.append([Set(path, data) if exists else Create(path, data)])
        self._write(units)

    def set_resource_configs(self, changed: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """Write the settings of resources that are not topics; a resource without any has no
        node."""
        units: list[list[Operation]] = []
        for resource, configs in changed.items():
            path = records.config_path(resource)
            exists = self._store.exists(path)
            if configs:
                data = records.encode_configs(configs)
                units.append([Set(path, data) if exists else Create(path, data)])
            elif exists:
                units.append([Delete(path)])
        self._write(units)

    @property
    def store(self) -> MetadataStore:
        """For reading, and for writes without a fence."""
        return self._store

    def write(self, units: Iterable[Sequence[Operation]]) -> None:
        """Write these, each whole, under the fence: for nodes that have a module of their own."""
        self._write(units)

    def set_partitions(self, partitions: Sequence[PartitionImage]) -> list[PartitionImage]:
        """Write partition states over those of the same partition epoch; the new states."""
        self._write([self._state_set(each)] for each in partitions)
        return [replace(each, partition_epoch=each.partition_epoch + 1) for each in partitions]

    def reassign(
        self, partitions: Iterable[PartitionImage], topics: Mapping[str, TopicImage]
    ) -> list[PartitionImage]:
        """As `set_partitions`, where their replicas change as well, with each topic's own node;
        `topics` as they were. A cut leaves some partitions as they are to be, the rest as before.
        """
        wanted = [(topics[some[0].topic], some) for some in _by_topic(partitions)]
        at_once = [self._states_at_once(topic, some) for topic, some in wanted]  # before any write
        written: list[PartitionImage] = []
        for (topic, some), count in zip(wanted, at_once, strict=True):
            written += self._reassign(topic, some, count)
        return written

    def _states_at_once(self, topic: TopicImage, partitions: Sequence[PartitionImage]) -> int:
        """How many of these one multi takes beside the topic's node."""
        left = self._room_beside(topic, partitions) // max(
            self._state_set(each).size_bytes for each in partitions
        )
        if left < 1:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic '{topic.name}' has too many replicas for a node of the metadata store: "
                "move it in several steps",
            )
        return left

    def _reassign(
        self, topic: TopicImage, partitions: Sequence[PartitionImage], at_once: int
    ) -> Iterator[PartitionImage]:
        for first in range(0, len(partitions), at_once):
            some = partitions[first : first + at_once]
            new = {each.index: each for each in some}
            states = tuple(new.get(each.index, each) for each in topic.partitions)
            topic = replace(topic, partitions=states)
            self._write([[self._topic_set(topic), *map(self._state_set, some)]])
            yield from (replace(each, partition_epoch=each.partition_epoch + 1) for each in some)

    def _room_beside(self, topic: TopicImage, partitions: Iterable[PartitionImage]) -> int:
        """Bytes that one multi has beside the topic's node, however many of these it says."""
        new = {each.index: each for each in partitions}
        longest = tuple(
            max(each, new.get(each.index, each), key=lambda one: len(one.replicas + one.adding))
            for each in topic.partitions
        )
        size_bytes = self._topic_set(replace(topic, partitions=longest)).size_bytes
        return MULTI_BYTES_MAX - self._fence.size_bytes - size_bytes

    def _state_set(self, partition: PartitionImage) -> Operation:
        return Set(
            _state_path(partition),
            records.encode_partition(partition, self._controller_epoch),
            partition.partition_epoch,
        )

    def note_losses(self, starts: Mapping[int, int]) -> None:
        """These brokers, in these epochs, have left their sets because records may be lost. No
        later controller takes the same start for a new one, when it may be in sync again."""
        units: list[list[Operation]] = []
        self._store.ensure(records.LOSSES)
        for node_id, broker_epoch in starts.items():
            path, data = records.losses_path(node_id), records.encode_losses(broker_epoch)
            exists = self._store.exists(path)
            units.append([Set(path, data) if exists else Create(path, data)])
        self._write(units)

    def forget_broker(self, node_id: int) -> bool:
        """Remove a broker's registration, and what is known of its directories and losses; False
        if there was nothing."""
        named = (records.broker_path, records.used_directories_path, records.losses_path)
        paths = [path(node_id) for path in named]
        while True:
            there: list[Operation] = [Delete(path) for path in paths if self._store.exists(path)]
            try:
                self._write([there])
            except MultiError as error:
                if not isinstance(error.cause, NoNodeError):
                    raise
                continue  # its session has just ended
            return bool(there)

    def read(self, paths: Sequence[str]) -> Mapping[str, Node]:
        """Those of the nodes that exist."""
        return self._store.get_many(paths)

    def children_data(self, path: str) -> Mapping[str, Node]:
        return self._store.children_data(path)

    def write_features(self, features: FinalizedFeatures) -> None:
        self._write([own_nodes.writing(self._store, features)])

    def take_producer_ids(self, node_id: int, count: int) -> int:
        """The first of `count` ids that are given out only once; KafkaError when used up."""
        path = records.PRODUCER_ID_BLOCK
        try:
            node = self._store.get(path)
        except NoNodeError:
            first = 0
            data = records.encode_producer_id_block(node_id, first, count)
            self._write([[Create(path, data)]])
            return first
        first = records.decode_producer_id_block(path, node.data)
        if first > _PRODUCER_ID_MAX - count:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
        data = records.encode_producer_id_block(node_id, first, count)
        self._write([[Set(path, data, node.version)]])
        return first

    def take_log_dir_events(self) -> bool:
        """Whether brokers have said that logs of theirs fail; the caller that takes this asks them.

        One that cannot be removed, since other nodes are below it, is logged and left.
        """
        events = self._store.children(records.LOG_DIR_EVENTS)
        for each in events:
            path = f"{records.LOG_DIR_EVENTS}/{each}"
            try:
                self._write([[Delete(path)]])
            except MultiError as error:
                log.error("%s cannot be removed, remove it by hand: %s", path, error)
        return bool(events)

    def _load_topics(
        self,
        nodes: Mapping[str, Node],
        configs: Mapping[str, Node],
        known: Mapping[str, TopicImage],
        unreadable: set[str],
    ) -> Iterator[TopicImage]:
        topics: list[TopicImage] = []
        for name, node in nodes.items():
            if name in unreadable:
                yield known[name]
                continue
            try:
                topics.append(_without_states(name, node, configs.get(name)))
            except DataDirectoryError as error:
                yield _as_known(name, known, unreadable, error)
        states = self._store.get_many(
            [_state_path(partition) for topic in topics for partition in topic.partitions]
        )
        for topic in topics:
            try:
                yield self._with_states(topic, states, known.get(topic.name))
            except _OF_ONE_TOPIC as error:
                yield _as_known(topic.name, known, unreadable, error)

    def _with_states(
        self, topic: TopicImage, states: Mapping[str, Node], known: TopicImage | None
    ) -> TopicImage:
        found = [(each, states.get(_state_path(each))) for each in topic.partitions]
        lacking = {
            each.index: _without_node(each, topic.topic_id, known)
            for each, node in found
            if node is None
        }
        if lacking:
            self._write(self._missing(topic.name, lacking.values()))
        stored = tuple(
            lacking[each.index] if node is None else _as_stored(each, node) for each, node in found
        )
        return replace(topic, partitions=stored)

    def _missing(
        self, name: str, partitions: Collection[PartitionImage]
    ) -> Iterator[list[Operation]]:
        """The creation of these partitions, none of which has a state. The nodes above it may be
        there or not: Apache Kafka up to 3.9 makes each in a step of its own."""
        folder = records.partitions_path(name)
        paths = [records.partition_path(name, each.index) for each in partitions]
        there = self._store.get_many([folder, *paths])
        if folder not in there:
            yield [Create(folder)]
        for partition, path in zip(partitions, paths, strict=True):
            creation = self._partition_creation(partition)
            yield creation[1:] if path in there else creation

    def _finish_deletions(
        self, known: Mapping[str, TopicImage], unreadable: set[str], left_out: set[str]
    ) -> Iterator[TopicImage]:
        for name, node in self._store.children_data(records.DELETED_TOPICS).items():
            path = f"{records.DELETED_TOPICS}/{name}"
            try:
                topic_id = records.decode_tombstone_id(path)
                record = self._tombstone(path, node, topic_id)
            except DataDirectoryError as error:
                log.error("a deletion is not finished, remove its node: %s", error.message)
                continue
            try:
                yield self._finish_deletion(topic_id, record)
            except DataDirectoryError as error:
                log.error("a deletion is not finished, remove its node: %s", error.message)
            except _OF_ONE_TOPIC as error:
                # Nodes of it are there, and must not make it a topic that begins from nothing.
                if record.name in known:
                    _as_known(record.name, known, unreadable, error)
                else:
                    log.error("the deletion of topic '%s' is not finished: %s", record.name, error)
                    left_out.add(record.name)

    def _tombstone(self, path: str, node: Node, topic_id: UUID) -> records.TombstoneRecord:
        """What it says, or what the topic does, if that is still there: it must not come back."""
        try:
            return records.decode_tombstone(path, node.data)
        except DataDirectoryError:
            for name, there in self._store.children_data(records.TOPICS).items():
                with suppress(DataDirectoryError):
                    topic = records.decode_topic(records.topic_path(name), there.data)
                    if topic.topic_id == topic_id:
                        return records.TombstoneRecord(name, len(topic.replicas))
            raise

    def _finish_deletion(self, topic_id: UUID, record: records.TombstoneRecord) -> TopicImage:
        topic_path = records.topic_path(record.name)
        try:
            topic_node = self._store.get(topic_path)
        except NoNodeError:
            pass  # the usual case: only the logs were left
        else:
            # A topic of this name with another id was created after the deletion: not ours.
            if records.decode_topic(topic_path, topic_node.data).topic_id == topic_id:
                self._write(self._removal(record.name))
        partitions = tuple(
            # A deleted topic has no replicas; the receiver goes by id, name and index.
            replace(first_partition_state(record.name, index, (-1,)), replicas=(), isr=())
            for index in range(record.partitions)
        )
        return replace(new_topic_image(record.name, topic_id, (), {}), partitions=partitions)

    def _creation(self, topic: TopicImage) -> Iterator[list[Operation]]:
        replicas = [partition.replicas for partition in topic.partitions]
        yield [
            Create(records.topic_path(topic.name), records.encode_topic(topic.topic_id, replicas)),
            Create(records.partitions_path(topic.name)),
            Create(records.topic_config_path(topic.name), records.encode_configs(topic.configs)),
        ]
        for partition in topic.partitions:
            yield self._partition_creation(partition)

    def _growth(self, before: TopicImage, after: TopicImage) -> Iterator[list[Operation]]:
        yield [self._topic_set(after)]
        for partition in after.partitions[len(before.partitions) :]:
            yield self._partition_creation(partition)

    def _shrinking(self, before: TopicImage, after: TopicImage) -> Iterator[list[Operation]]:
        # The topic's node goes last: cut before it, the partitions are supplied again by `load`.
        for partition in before.partitions[len(after.partitions) :]:
            path = records.partition_path(partition.topic, partition.index)
            yield [Delete(_state_path(partition)), Delete(path)]
        yield [self._topic_set(after)]

    def _topic_set(self, topic: TopicImage) -> Operation:
        replicas = [each.replicas for each in topic.partitions]
        adding = {each.index: each.adding for each in topic.partitions if each.adding}
        removing = {each.index: each.removing for each in topic.partitions if each.removing}
        data = records.encode_topic(topic.topic_id, replicas, adding, removing)
        return Set(records.topic_path(topic.name), data)

    def _partition_creation(self, partition: PartitionImage) -> list[Operation]:
        state = records.encode_partition(partition, self._controller_epoch)
        return [
            Create(records.partition_path(partition.topic, partition.index)),
            Create(_state_path(partition), state),
        ]

    def _deletion(self, topic: TopicImage) -> Iterator[list[Operation]]:
        tombstone = records.encode_tombstone(topic.name, len(topic.partitions))
        yield [Create(records.tombstone_path(topic.topic_id), tombstone)]
        yield from self._removal(topic.name)

    def _removal(self, name: str) -> Iterator[list[Operation]]:
        """What is there is removed; the topic's node goes last, so a cut can be gone on with."""
        partitions = records.partitions_path(name)
        folder: list[Operation] = [Delete(partitions)]
        try:
            paths = [f"{partitions}/{index}" for index in self._store.children(partitions)]
        except NoNodeError:
            self._multi([])  # FencedError if another controller has removed it
            if not self._store.exists(records.topic_path(name)):
                raise
            folder, paths = [], []
        states = self._store.get_many([f"{path}/state" for path in paths])
        for path in paths:
            state = f"{path}/state"
            yield [Delete(state), Delete(path)] if state in states else [Delete(path)]
        config = records.topic_config_path(name)
        last: list[Operation] = [Delete(config)] if self._store.exists(config) else []
        yield [*last, *folder, Delete(records.topic_path(name))]

    def _write(self, units: Iterable[Sequence[Operation]]) -> None:
        """Write units, never cutting one, in as few fenced multis as the store's bound allows."""
        batch: list[Operation] = []
        batch_bytes = 0
        for unit in units:
            unit_bytes = sum(operation.size_bytes for operation in unit)
            if batch and batch_bytes + unit_bytes > MULTI_BYTES_MAX - self._fence.size_bytes:
                self._multi(batch)
                batch, batch_bytes = [], 0
            batch.extend(unit)
            batch_bytes += unit_bytes
        if batch:
            self._multi(batch)

    def _multi(self, operations: list[Operation]) -> None:
        try:
            self._store.multi([self._fence, *operations])
        except MultiError as error:
            if error.index == 0 and isinstance(error.cause, BadVersionError):
                raise FencedError(str(error)) from None
            raise


def _state_path(each: PartitionImage) -> str:
    return records.partition_state_path(each.topic, each.index)


def _by_topic(partitions: Iterable[PartitionImage]) -> Iterable[list[PartitionImage]]:
    found: dict[str, list[PartitionImage]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found.values()


def _without_states(name: str, node: Node, config: Node | None) -> TopicImage:
    """A topic as its own node and its settings say it, before any election."""
    record = records.decode_topic(records.topic_path(name), node.data)
    path = records.topic_config_path(name)
    configs = {} if config is None else records.decode_configs(path, config.data)
    return _with_moves(new_topic_image(name, record.topic_id, record.replicas, configs), record)


def _as_known(
    name: str, known: Mapping[str, TopicImage], unreadable: set[str], error: Exception
) -> TopicImage:
    topic = known.get(name)
    if topic is None:
        raise error
    unreadable.add(name)
    cause = error.cause if isinstance(error, MultiError) else error
    said = cause.message if isinstance(cause, DataDirectoryError) else str(cause)
    log.error("topic '%s' stays as it is, and nothing of it is changed: %s", name, said)
    return topic


def _without_node(
    initial: PartitionImage, topic_id: UUID, known: TopicImage | None
) -> PartitionImage:
    """What a partition is that has no node of its own: from nothing, since its creation was cut
    short before any client could write to it. Where it was known its node is lost: as it was, in a
    leader epoch after all those that were in it."""
    if known is None or known.topic_id != topic_id or initial.index >= len(known.partitions):
        return initial
    before = known.partitions[initial.index]
    if before.places != initial.places:
        raise records.damaged(_state_path(initial), "it is lost, and its replicas have changed")
    return replace(before, leader_epoch=before.leader_epoch + 1, partition_epoch=0)


def _with_moves(topic: TopicImage, record: records.TopicRecord) -> TopicImage:
    """A topic's partitions with those replicas that come and go."""
    if not record.adding and not record.removing:
        return topic
    return replace(
        topic,
        partitions=tuple(
            replace(
                each,
                adding=record.adding.get(each.index, ()),
                removing=record.removing.get(each.index, ()),
            )
            for each in topic.partitions
        ),
    )


def _as_stored(initial: PartitionImage, node: Node) -> PartitionImage:
    """A partition's replicas as its topic says them, the rest as its own node does."""
    path = _state_path(initial)
    state = records.decode_partition(path, node.data)
    if not {*state.isr, *state.eligible, state.leader} <= {*initial.replicas, NO_LEADER}:
        raise records.damaged(path, "leader, in-sync or eligible replica is no replica")
    if state.last_leader not in initial.replicas:
        state = state._replace(last_leader=NO_LEADER)
    return replace(initial, **state._asdict(), partition_epoch=node.version)


def load_brokers(store: MetadataStore) -> tuple[BrokerImage, ...]:
    """Who is registered; lossy as long as no controller has taken account of that. Whose
    registration cannot be read is none of them: it is not reached, and the others go on."""
    brokers: list[BrokerImage] = []
    for name, node in store.children_data(records.BROKER_IDS).items():
        path = f"{records.BROKER_IDS}/{name}"
        try:
            brokers.append(records.decode_broker(path, node.data, node.created))
        except DataDirectoryError as error:
            log.error("a broker is left out, start it again: %s", error.message)
    if any(broker.lossy for broker in brokers):
        known = _known_losses(store)
        brokers = [
            replace(each, lossy=False) if known.get(each.node_id) == each.epoch else each
            for each in brokers
        ]
    return tuple(sorted(brokers, key=lambda broker: broker.node_id))


def _known_losses(store: MetadataStore) -> dict[int, int]:
    """Brokers, with the epochs of their last lossy starts of which account was taken."""
    known: dict[int, int] = {}
    try:
        nodes = store.children_data(records.LOSSES)
    except NoNodeError:
        return known
    for name, node in nodes.items():
        try:
            node_id, broker_epoch = records.decode_losses(f"{records.LOSSES}/{name}", node.data)
            known[node_id] = broker_epoch
        except DataDirectoryError as error:
            log.error("a lossy start counts as not known: %s", error.message)
    return known


def note_log_dir_event(store: MetadataStore, node_id: int) -> None:
    """Have the controller ask this broker which of its logs fail. One that has not been taken yet
    is enough: the controller that takes it asks after that."""
    try:
        store.create(records.log_dir_event_path(node_id), records.encode_log_dir_event(node_id))
    except NodeExistsError:
        pass
