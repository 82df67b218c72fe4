"""ReplicaManager: which partitions this broker holds, in step with the controller's images.

`apply` runs on the controller's thread before an image is published: it has logs opened or created
(`log/log_lanes.py`), sets the leaders, publishes the C snapshot, and only then do clients see the
topic. Requests parked on partitions that were there before are looked at then: leader and high
watermark may be others now. Removed topics leave the snapshot first, then their logs go, and the
requests parked on them are answered. `apply` may be repeated with the same delta; work that is done
already is left alone.

A partition that was made just now and has no log takes the whole delta with it. One that was read
in the store stays **offline** when its log cannot be opened, beside others that serve: it has no
leader until the store is read again; or, where a crash left a log that is still being read, until
that is done (`log/opening/recovery.py`), and where its disk was full, until there is room
(`log/opening/wanting_room.py`): the controller has its topic applied once more then. So it is with
a log whose data directory does not answer; the end of a removal may be late, too (`removing`).

Readers (`partition`) take one dictionary look-up and no lock: the map is replaced, never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kbroker.clock import SystemClock
from kbroker.compression import PACKINGS, Codec, Packing
from kbroker.config.keys_topic import SYNONYMS
from kbroker.config.topic import TopicConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.partition_log import KEPT_FOR_EVER, Compaction
from kbroker.log.log_lanes import STUCK_MS, LogLanes
from kbroker.log.opening.recovery import LogNotReadyError
from kbroker.replica._replica import Replica
from kbroker.replica.leadership import set_leadership
from kbroker.replica.throttled_replicas import LEADER_REPLICAS, names_replica
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.engine._results import DirectoryUse
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.manager import LogManager
    from kbroker.metadata.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
    from kbroker.replica._topic_table import TopicTable
    from kbroker.replica.held_replicas import HeldReplicas

    # One topic of the C snapshot: name, id, internal, the replicas that are here by partition.
    Lead = Callable[[Replica, PartitionImage], None]
    Row = tuple[str, bytes, bool, list[Replica | None]]

logger: Final = logging.getLogger("kbroker.replica")

# A new topic of a broker without a cluster is made or refused, and no other broker waits for that.
NEW_LOG_MS: Final = 10_000


# The broker keys that topics fall back on.
TOPIC_DEFAULTS: Final = frozenset(each.broker_key for group in SYNONYMS.values() for each in group)
# By `compression.type`: what batches are stored with; "producer" is not among them.
STORED_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
LEVEL_KEYS: Final = {
    Codec.GZIP: "compression.gzip.level",
    Codec.LZ4: "compression.lz4.level",
    Codec.ZSTD: "compression.zstd.level",
}


def stored_packing(config: TopicConfig) -> Packing | None:
    """How a topic packs the batches that come in another codec; None: each as it came."""
    codec = STORED_CODECS.get(config["compression.type"])
    if codec is None:
        return None
    key = LEVEL_KEYS.get(codec)
    return PACKINGS[codec] if key is None else Packing(codec, config[key])


def log_settings(config: TopicConfig, replicas: int) -> dict[str, Any]:
    """A topic's configuration in the terms of the log (`PartitionLog.configure`), for a partition
    with so many replicas: more in sync than there are cannot be asked for.
    """
    policy = config["cleanup.policy"]
    deletes, compacts = "delete" in policy, "compact" in policy
    compaction = Compaction(
        config["min.cleanable.dirty.ratio"],
        config["min.compaction.lag.ms"],
        config["max.compaction.lag.ms"],
        config["delete.retention.ms"],
    )
    segment_ms = config["segment.ms"]
    if compacts:  # what lies in the active segment is not cleaned
        segment_ms = min(segment_ms, compaction.lag_max_ms)
    packing = stored_packing(config)
    return {
        "segment_bytes": config["segment.bytes"],
        "segment_ms": segment_ms,
        "segment_jitter_ms": min(config["segment.jitter.ms"], segment_ms),
        "index_interval_bytes": config["index.interval.bytes"],
        "segment_index_bytes": config["segment.index.bytes"],
        "max_message_bytes": config["max.message.bytes"],
        "min_insync_replicas": min(config["min.insync.replicas"], max(1, replicas)),
        "log_append_time": config["message.timestamp.type"] == "LogAppendTime",
        "stored_codec": -1 if packing is None else int(packing.codec),
        "compacted": compacts,
        "compaction": compaction,
        "timestamp_before_max_ms": config["message.timestamp.before.max.ms"],
        "timestamp_after_max_ms": config["message.timestamp.after.max.ms"],
        "flush_messages": config["flush.messages"],
        "flush_ms": config["flush.ms"],
        "file_delete_delay_ms": config["file.delete.delay.ms"],
        "retention_ms": config["retention.ms"] if deletes else KEPT_FOR_EVER,
        "retention_bytes": config["retention.bytes"] if deletes else KEPT_FOR_EVER,
    }


def needed_in_sync(own: int, partition: PartitionImage) -> int:
    """How many replicas must be in sync. By the controller's number others than those in sync are
    eligible, so the high watermark does not move by a smaller one, whatever our settings say."""
    return max(own, partition.min_in_sync)


def _replica_of(log: PartitionLog) -> Replica:
    """In the lane of its directory: where the high watermark lies may have to be read."""
    replica = Replica(log)
    try:
        replica.set_high_watermark(log.checkpointed_high_watermark)
    except KafkaError:
        # It lies in bytes that cannot be read: it begins at the start, as that of a new log.
        logger.warning("%s: no batch is where the high watermark was", log.name)
    return replica


def _gives_way(replica: Replica, topic: TopicImage, from_store: bool) -> bool:
    """Whether another one is to be in its place: it is of another topic, or its log is closed, and
    may open again."""
    return replica.topic_id != topic.topic_id or (from_store and replica.log.may_open_again)


def _names(topic: TopicImage) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, each.index) for each in topic.partitions)


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        logs: LogManager,
        table: TopicTable,
        held: HeldReplicas,
        lead: Lead | None = None,
        lanes: LogLanes | None = None,
    ) -> None:
        """`held` is the listener of `logs`. `lead` says to a replica who leads it; by default as
        the controller has confirmed it. `lanes` open and remove logs; without them that is done on
        the caller's thread."""
        self._config = config
        self._node_id = node_id
        self._logs = logs
        self._lanes = lanes or LogLanes(logs, SystemClock())
        self._table = table
        self._held = held
        self._lead = lead or partial(set_leadership, node_id)
        self._topic_ids: dict[str, UUID] = {}
        self._offline: set[TopicPartition] = set()
        self._due: dict[TopicPartition, int] = {}  # recovery points where a flush was due

    def partition(self, topic: str, index: int) -> Replica | None:
        """The replica of a partition that this broker holds; from any thread."""
        return self._held.now.get(TopicPartition(topic, index))

    @property
    def any_offline(self) -> bool:
        """Whether a log that should be here could not be opened, or not yet."""
        return bool(self._offline)

    def use_of_directories(self, wanted: Set[TopicPartition] | None) -> list[DirectoryUse]:
        """The data directories with the logs in them, all or those wanted; from any thread."""
        return self._logs.use_of_directories(wanted)

    def move(self, name: TopicPartition, path: str) -> None:
        """A log goes to the data directory at `path`, in the background; one that is not here
        begins there. KafkaError: why not, or REPLICA_NOT_AVAILABLE. From any thread."""
        if name in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline")
        self._logs.moves.mover.ask(name, path)

    def delete_records(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Moves starts of logs forward, -1 to the high watermark; where each is now, or why not.

        From any thread. On return the new starts survive the end of this process, and fetches that
        waited below them are answered, as are followers' fetches: their logs follow.
        """
        results: dict[TopicPartition, int | KafkaError] = {}
        moved: list[Replica] = []
        for name, offset in wanted.items():
            replica = self._held.now.get(name)
            try:
                if replica is None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
                results[name] = replica.delete_records(offset)
                moved.append(replica)
            except KafkaError as error:
                results[name] = error
        failed = self.keep_starts([replica.log for replica in moved])
        for name, reason in failed.items():
            results[name] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(reason))
        for replica in moved:
            self._held.wake(replica)
        return results

    def keep_starts(self, logs: Iterable[PartitionLog]) -> Mapping[TopicPartition, OSError]:
        """Where these begin is on file on return, but for those that are answered, with the reason.
        From any thread."""
        failed = self._logs.checkpointing.write_log_starts(logs)
        for reason in {id(each): each for each in failed.values()}.values():
            logger.error("the starts of logs cannot be written: %s", reason)
            self._logs.trouble.look_at_cause(reason, self._logs.usable)
        return failed

    def replicas(self) -> Mapping[TopicPartition, Replica]:
        """All partitions here as of now; the mapping is never changed. From any thread."""
        return self._held.now

    def apply(self, image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        """Follow the controller; the partitions of this delta that stay offline.

        Raises when a new log cannot be opened, with nothing published, and when one cannot be
        removed: it is closed then, and another try goes on from there.
        """
        gone = [
            topic for topic in delta.deleted if self._topic_ids.get(topic.name) == topic.topic_id
        ]
        if gone:
            self._remove(gone)
        over = {topic.name for topic in delta.deleted} - self._topic_ids.keys()
        for name in [name for name in self._offline if name.topic in over]:
            self._stay_away(name)
        if delta.deleted:
            self._logs.wanting_room.forget([it for each in delta.deleted for it in _names(each)])
            deleted = {topic.topic_id: topic.name for topic in delta.deleted}
            self._lanes.delete_topic_directories(deleted)
            self._lanes.make_names_last()
            self._lanes.wait()
        opened = [*delta.created, *delta.changed]
        if opened:
            self._open(opened, delta)
        for topic in delta.reconfigured:
            self._configure(topic)
        return [name for topic in opened for name in _names(topic) if name in self._offline]

    def reclaim(self) -> None:
        """Frees what hot calls have left of topics that are gone or replaced. From any thread."""
        self._table.reclaim()

    def flush_due(self) -> Iterator[None]:
        """Brings to the disk what the high watermarks wait for (`flush.messages`), a log a step.

        Appends and fetches do that by themselves, but a replica that becomes the leader does not:
        it waits for no disk. So a log is flushed that was due at the last look already. On the
        scheduler's thread.
        """
        before, self._due = self._due, {}
        for name, replica in self._held.now.items():
            if not (replica.online and replica.flush_is_due):
                continue
            self._due[name] = replica.log.recovery_point
            if before.get(name) != self._due[name]:
                continue
            try:
                replica.flush_if_due()
            except OSError as error:
                logger.error("%s cannot be flushed: %s", name, error)
            else:
                self._held.wake(replica)
            yield

    def follow_config(self, config: BrokerConfig, topics: Iterable[TopicImage]) -> None:
        """Another configuration of the broker, of which topics have what they do not set.

        On the controller's thread; on return every log of these topics that is here follows.
        """
        before, self._config = self._config, config
        if any(before[name] != config[name] for name in TOPIC_DEFAULTS):
            for topic in topics:
                self._configure(topic)

    def _open(self, topics: list[TopicImage], delta: ImageDelta) -> None:
        from_store, only = delta.from_store, delta.only
        # What stays offline, though its topic is applied: a log that cannot be read may take long
        # to say so once more.
        left = self._offline - only if from_store and only is not None else frozenset()
        partitions = dict(self._held.now)
        rows: list[Row] = []
        fresh: list[Replica] = []
        taken: list[Replica] = []
        begun: list[TopicPartition] = []
        try:
            for topic in topics:
                begun += self._begin(topic, delta, left)
            self._lanes.make_names_last()
            if not self._lanes.wait(STUCK_MS if from_store else NEW_LOG_MS) and not from_store:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a data directory does not answer")
            for topic in topics:
                taken += self._taken_away(topic, partitions)
                rows.append(self._open_topic(topic, delta, left, partitions, fresh))
            self._table.publish(rows, [])
        except BaseException as error:
            for replica in fresh:
                self._lanes.close(replica.log)
            for name in begun:
                self._lanes.give_up(name)
                if from_store and name not in self._offline:
                    self._logs.wanting_room.note(name, error)
            self._lanes.wait()
            if from_store:
                self._offline |= {
                    name for topic in topics for name in _names(topic) if name not in self._held.now
                }
            raise
        else:
            self._held.now = partitions
            for replica in fresh:
                self._logs.wanting_room.opened(replica.log.name)
            self._topic_ids.update((topic.name, topic.topic_id) for topic in topics)
            for replica in taken:
                self._held.wake(replica)
                self._delete(replica)  # and wakes consumers that it served as a follower
            if taken:
                self._lanes.wait()
        finally:
            self._wake_watchers(topics)

    def _wake_watchers(self, topics: Iterable[TopicImage]) -> None:
        """Leaders, in-sync sets and with them high watermarks of their partitions have changed."""
        for topic in topics:
            for name in _names(topic):
                replica = self._held.now.get(name)
                if replica is not None and replica.has_watchers:
                    self._held.wake(replica)

    def _taken_away(
        self, topic: TopicImage, partitions: dict[TopicPartition, Replica]
    ) -> Iterator[Replica]:
        """Replicas that are not to be here any more: led elsewhere, and not known any more."""
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.index)
            replica = partitions.get(name)
            if replica is None or replica.topic_id != topic.topic_id:
                continue
            if self._node_id not in partition.replicas:
                self._lead(replica, partition)
                del partitions[name]
                yield replica

    def _begin(
        self, topic: TopicImage, delta: ImageDelta, left: Set[TopicPartition]
    ) -> Iterator[TopicPartition]:
        """Those of its logs that are to be here and are not: all are opened beside each other."""
        settings, from_store = self._settings_of(topic), delta.from_store
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.index)
            replica = self._held.now.get(name)
            if (
                self._node_id not in partition.replicas
                or name in left
                or (name in self._offline and not from_store)
                or (replica is not None and not _gives_way(replica, topic, from_store))
            ):
                continue
            if replica is not None and replica.topic_id == topic.topic_id:
                self._lanes.close(replica.log)
            new = not from_store or name in delta.new or self._is_new_here(partition)
            self._lanes.begin(
                name, topic.topic_id, settings(partition), new=new, opened=_replica_of
            )
            yield name

    def _open_topic(
        self,
        topic: TopicImage,
        delta: ImageDelta,
        left: Set[TopicPartition],
        partitions: dict[TopicPartition, Replica],
        fresh: list[Replica],
    ) -> Row:
        settings, from_store = self._settings_of(topic), delta.from_store
        replicas: list[Replica | None] = []
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.index)
            if self._node_id not in partition.replicas:
                self._stay_away(name)
                replicas.append(None)
                continue
            replica = partitions.get(name)
            if name in left:
                replicas.append(None)
                continue
            if replica is None or _gives_way(replica, topic, from_store):
                how = settings(partition)
                partitions.pop(name, None)
                replica = self._open_replica(name, topic.topic_id, how, from_store)
                if replica is None:
                    replicas.append(None)
                    continue
                fresh.append(replica)
                partitions[name] = replica
            elif replica.log.min_insync_replicas != settings(partition)["min_insync_replicas"]:
                replica.log.configure(**settings(partition))  # by the controller's word
            self._lead(replica, partition)
            self._throttle(replica, topic)
            replicas.append(replica)
        return topic.name, topic.topic_id.bytes, topic.internal, replicas

    def _stay_away(self, name: TopicPartition) -> None:
        """It is not to be here any more, where it was offline."""
        if name in self._offline:
            self._offline.discard(name)
            self._logs.wanting_room.forget([name])
            self._lanes.give_up(name)

    def _is_new_here(self, partition: PartitionImage) -> bool:
        """Whether this replica has not been counted on yet: it may begin with nothing."""
        known = {*partition.isr, *partition.eligible}
        return self._node_id in partition.adding and self._node_id not in known

    def _settings_of(self, topic: TopicImage) -> Callable[[PartitionImage], dict[str, Any]]:
        config = TopicConfig(self._config, topic.configs)
        known: dict[tuple[int, int], dict[str, Any]] = {}

        def of(partition: PartitionImage) -> dict[str, Any]:
            key = partition.replication_factor, partition.min_in_sync
            if key not in known:
                settings = log_settings(config, partition.replication_factor)
                needed = needed_in_sync(settings["min_insync_replicas"], partition)
                known[key] = {**settings, "min_insync_replicas": needed}
            return known[key]

        return of

    def _open_replica(
        self,
        name: TopicPartition,
        topic_id: UUID,
        settings: dict[str, Any],
        from_store: bool,
    ) -> Replica | None:
        """None: it is offline, and stays so while others of its topic come and go."""
        if name in self._offline and not from_store:
            return None
        try:
            replica: Replica = self._lanes.take(name, topic_id, settings)
        except KafkaError as error:
            if not from_store:
                raise
            if not isinstance(error, LogNotReadyError):  # which is a matter of time
                logger.error("%s is offline: %s", name, error.message)
            self._offline.add(name)
            self._logs.wanting_room.note(name, error)
            return None
        self._offline.discard(name)
        return replica

    def _remove(self, topics: list[TopicImage]) -> None:
        """Out of the snapshot, then closed. A log whose files stay is a line here; a later search
        for the topic's files finds them by its id."""
        names = {topic.name for topic in topics}
        left = dict(self._held.now)
        removed = [left.pop(name) for name in self._held.now if name.topic in names]
        self._table.publish([], [topic.topic_id.bytes for topic in topics])
        self._held.now = left
        for topic in topics:
            del self._topic_ids[topic.name]
        for replica in removed:
            self._delete(replica)

    def removing(self) -> frozenset[UUID]:
        """Deleted topics whose files have their names yet: a data directory does not answer."""
        return self._lanes.removing()

    def _delete(self, replica: Replica) -> None:
        self._lanes.after(replica.log, partial(self._delete_now, replica))

    def _delete_now(self, replica: Replica) -> None:
        """In the lane of the log."""
        try:
            self._logs.delete(replica.log)
        except KafkaError as error:
            logger.error("%s", error.message)
        finally:
            self._held.wake(replica)

    def _configure(self, topic: TopicImage) -> None:
        settings = self._settings_of(topic)
        for partition in topic.partitions:
            replica = self.partition(topic.name, partition.index)
            if replica is None:
                continue
            replica.log.configure(**settings(partition))
            self._throttle(replica, topic)
            replica.advance()  # fewer may be enough in sync now
            if replica.has_watchers:
                self._held.wake(replica)

    def _throttle(self, replica: Replica, topic: TopicImage) -> None:
        named = topic.configs.get(LEADER_REPLICAS, "")
        replica.throttle(names_replica(named, replica.name.partition, self._node_id))

    def statistics(self) -> dict[str, int]:
        """Figures for metrics: partitions held, led, without enough in-sync replicas."""
        logs = [replica.log for replica in self._held.now.values()]
        return {"partitions": len(logs), "bytes": sum(log.size_bytes for log in logs)}
