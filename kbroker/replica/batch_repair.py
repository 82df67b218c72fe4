"""What the scrub found damaged is asked of another replica, and written where it belongs.

Place in the flow: `LogScrubber`, on its own thread, calls with one damaged batch of one log; the
leader and the replicas in sync with it are asked for the offset as a consumer asks, one after the
other. What comes takes the damaged batch's place only if nothing but the damage tells them apart:

- its own CRC is right, and all of its records are below the high watermark here, so that no leader
  takes them back;
- it is of the leader epoch in which that offset was written here;
- its header is the one of this log, byte for byte, whose CRC its records fit then; or, in a log
  that is not compacted, its records are, and its offset is the one that comes next.

So a batch that another replica has compacted, or packed in another way, changes nothing here.

Blocking, with a bound on time: only a stop waits for this thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.clock import NS_PER_MS
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.log.engine.validator import batch_offsets
from kbroker.log.looking._tools import crc32c
from kbroker.peer import messages
from kbroker.peer.address import Address
from kbroker.peer.link import Link, open_link
from kbroker.protocol.record_batch import (
    ATTRIBUTES_BEGIN,
    BATCH_HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.log.engine._results import DamagedBatch
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.upkeep._scrub import SegmentScrub
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.replica._replica import Replica
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

ANSWER_MS_MAX: Final = 2_000

OpenLink = Callable[[Address, str, int, "Clock"], Link]


class BatchRepair:
    """See the head of this file. Called on one thread."""

    def __init__(
        self,
        node_id: int,
        replica_of: Callable[[TopicPartition], Replica | None],
        image: Callable[[], ClusterImage],
        clock: Clock,
        link: OpenLink = open_link,
    ) -> None:
        self._node_id: Final = node_id
        self._replica_of: Final = replica_of
        self._image: Final = image
        self._clock: Final = clock
        self._link: Final = link

    def __call__(self, log: PartitionLog, scrub: SegmentScrub, damaged: DamagedBatch) -> str | None:
        """The broker that had it; None: no broker had a batch that fits. OSError: it cannot be
        written."""
        replica = self._replica_of(log.name)
        if replica is None or replica.log is not log:
            return None
        for broker in self._others(log):
            try:
                theirs = self._ask(broker, log.name, damaged.offset)
            except (KafkaError, ProtocolError, UserError) as error:
                logger.info(
                    "%s: broker %d does not give offset %d: %s",
                    log.name, broker.node_id, damaged.offset, error,
                )  # fmt: skip
                continue
            ours = scrub.bytes_at(damaged.position, len(theirs))
            if not is_the_same(replica, damaged.offset, ours, theirs):
                logger.info(
                    "%s: what broker %d has at offset %d does not fit here",
                    log.name, broker.node_id, damaged.offset,
                )  # fmt: skip
            elif log.restore(scrub, damaged.position, theirs):
                return f"broker {broker.node_id}"
        return None

    def _others(self, log: PartitionLog) -> Iterator[BrokerImage]:
        """Who has all that is committed, the leader first."""
        image = self._image()
        topic = image.topic_by_id(log.topic_id)
        if topic is None or log.name.partition >= len(topic.partitions):
            return
        partition = topic.partitions[log.name.partition]
        for node_id in sorted(partition.isr, key=lambda each: each != partition.leader):
            broker = image.brokers.get(node_id)
            if broker is not None and node_id != self._node_id and broker.port >= 0:
                yield broker

    def _ask(self, broker: BrokerImage, name: TopicPartition, offset: int) -> bytes:
        """The batch with that offset, or the next one; KafkaError, ProtocolError."""
        deadline_ns = self._clock.monotonic_ns() + ANSWER_MS_MAX * NS_PER_MS
        address = Address(broker.host, broker.port)
        link = self._link(address, f"kbroker-repair-{self._node_id}", ANSWER_MS_MAX, self._clock)
        try:
            version = link.version(ApiKey.FETCH)
            body = messages.encode_fetch(
                version, {name: offset},
                max_wait_ms=0, min_bytes=0, max_bytes=1, partition_max_bytes=1,
            )  # fmt: skip
            link.send(ApiKey.FETCH, version, body, deadline_ns)
            found = messages.decode_fetch(link.receive(deadline_ns), version).get(name)
        finally:
            link.close()
        if found is None or found.error is not ErrorCode.NONE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR if found is None else found.error)
        return first_batch(found.records)


def first_batch(records: bytes) -> bytes:
    """Nothing where there is no whole one."""
    if len(records) < HEADER_BYTES:
        return b""
    _, length, *_ = BATCH_HEADER.unpack_from(records)
    size = LOG_OVERHEAD_BYTES + length
    return records[:size] if HEADER_BYTES <= size <= len(records) else b""


def is_the_same(replica: Replica, offset: int, ours: bytes, theirs: bytes) -> bool:
    """Whether a batch that is sound is what damage made `ours` of, where `offset` is expected."""
    if not theirs or len(ours) != len(theirs):
        return False
    _, _, _, magic, crc, *_ = BATCH_HEADER.unpack_from(theirs)
    if magic != 2 or crc32c(theirs[ATTRIBUTES_BEGIN:]) != crc:
        return False
    base_offset, last_offset, leader_epoch = batch_offsets(theirs)
    if last_offset >= replica.high_watermark or base_offset < offset:
        return False
    if leader_epoch != replica.epochs.epoch_at(base_offset):
        return False
    if ours[:HEADER_BYTES] == theirs[:HEADER_BYTES]:
        return True
    has_gaps = replica.log.compacts or replica.log.cleaned_to > 0
    return not has_gaps and base_offset == offset and ours[HEADER_BYTES:] == theirs[HEADER_BYTES:]
