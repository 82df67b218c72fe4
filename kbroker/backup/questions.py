"""What a backup asks the broker that serves: leaders, committed offsets, ends of logs.

The order is the point (docs/adr/0060): committed offsets, then the ends of all logs in one round,
then the end of the log of transactional ids. So no saved offset is after the end of a saved log,
and what the coordinator of transactions has decided is known for each one that is open there.

Errors are those of the client: KafkaError, UserError. One thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.peer.client import Client
from kbroker.peer.groups import Groups
from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kbroker.types import TopicPartition

PAUSE_MS: Final = 20
# A group that is gone, or is of a kind that commits no offsets.
_NO_OFFSETS: Final = (
    ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNSUPPORTED_VERSION,
)  # fmt: skip


class Led(NamedTuple):
    """Partitions that one broker leads, each with its topic's id. `elsewhere`: how many of the
    partitions that were asked for other brokers lead. `counts`: of partitions, by topic."""

    cluster_id: str
    partitions: Mapping[TopicPartition, UUID]
    elsewhere: int
    offsets_partitions: int
    counts: Mapping[str, int]


class CommittedOffset(NamedTuple):
    group: str
    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str


class Ends(NamedTuple):
    """Of logs, at one moment. `stable`: below it no transaction is open."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]


class Asked(Protocol):
    """The broker that serves; `AskedBroker` asks it through a client."""

    def led_by(self, node_id: int, topics: Collection[str]) -> Led:
        """Of these topics, or of all but those of coordinators; and the log of transactional ids,
        where these are written. UserError for a partition without a leader."""
        ...

    def committed_offsets(self, partitions: Collection[TopicPartition]) -> list[CommittedOffset]:
        """Of all groups, for these partitions."""
        ...

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Ends: ...
    def high_watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]: ...
    def pause(self) -> None:
        """Waits for a moment in which the broker may do more."""
        ...


class AskedBroker:
    """See `Asked`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def led_by(self, node_id: int, topics: Collection[str]) -> Led:
        found = self._client.metadata()
        _check_topics(topics, found.topics)
        partitions: dict[TopicPartition, UUID] = {}
        elsewhere = 0
        for topic in found.topics.values():
            is_wanted = topic.name in topics if topics else topic.name not in INTERNAL_TOPICS
            if not is_wanted and topic.name != TRANSACTIONS_TOPIC:
                continue
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.index)
                if each.leader < 0 or topic.topic_id is None:
                    raise UserError(
                        f"{name} has no leader, so its records cannot be saved",
                        "wait until it has one, or name other topics with --topic",
                    )
                if each.leader == node_id:
                    partitions[name] = topic.topic_id
                else:
                    elsewhere += 1
        offsets = found.topics.get(OFFSETS_TOPIC)
        return Led(
            found.cluster_id or "",
            partitions,
            elsewhere,
            0 if offsets is None else len(offsets.partitions),
            {topic.name: len(topic.partitions) for topic in found.topics.values()},
        )

    def committed_offsets(self, partitions: Collection[TopicPartition]) -> list[CommittedOffset]:
        groups, wanted = Groups(self._client), frozenset(partitions)
        found: list[CommittedOffset] = []
        for listed in groups.list_groups():
            group = listed.group.group
            try:
                offsets = groups.offsets(group)
            except KafkaError as error:
                if error.code in _NO_OFFSETS:
                    continue
                raise
            for name, each in sorted(offsets.items()):
                if each.error is not ErrorCode.NONE:
                    raise KafkaError(each.error, f"the offset of group '{group}' for {name}")
                if name in wanted and each.offset >= 0:
                    found.append(
                        CommittedOffset(group, name, each.offset, each.leader_epoch, each.metadata)
                    )
        return found

    def ends_of(self, partitions: Iterable[TopicPartition]) -> Ends:
        """The stable offsets come first, so that none is after its end."""
        names = list(partitions)
        start = self._offsets(names, EARLIEST_TIMESTAMP, READ_UNCOMMITTED)
        stable = self._offsets(names, LATEST_TIMESTAMP, READ_COMMITTED)
        return Ends(start, self.high_watermarks(names), stable)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(list(partitions), LATEST_TIMESTAMP, READ_UNCOMMITTED)

    def pause(self) -> None:
        self._client.cluster.sleep_ms(PAUSE_MS)

    def _offsets(
        self, partitions: list[TopicPartition], timestamp_ms: int, isolation: int
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        asked = dict.fromkeys(partitions, timestamp_ms)
        answers = self._client.list_offsets(asked, isolation=isolation)
        for name, answer in answers.items():
            if answer.error is not ErrorCode.NONE:
                raise KafkaError(answer.error, f"the end of {name}")
        return {name: answers[name].offset for name in partitions}


def _check_topics(wanted: Collection[str], there: Collection[str]) -> None:
    for topic in wanted:
        if topic in INTERNAL_TOPICS:
            raise UserError(f"{topic} is a coordinator's own topic", "leave it out")
        if topic not in there:
            raise UserError(f"topic '{topic}' does not exist", "kbroker topic list has all")
