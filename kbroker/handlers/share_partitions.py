"""What ShareFetch and ShareAcknowledge have in common: sessions, acknowledgements, leaders.

A request names partitions by topic id, some with acknowledgements. Those of one partition are
accepted together or not at all, with a code of their own; it may come with a write of the share
coordinator, from another thread. Any handler thread; holds no lock but the one of its answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from kbroker.coordinator.share.images import SharePartition as Key
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import failures
from kbroker.handlers.services import NO_LEADER_EPOCH, brokers_as_seen, led_replica
from kbroker.limits import SHARE_SESSION_PARTITIONS_MAX
from kbroker.replica.share.acknowledging import Acknowledgement, check
from kbroker.replica.share.sessions import Place
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.engine.share.led import LedSharePartition
    from kbroker.engine.share.service import ShareService
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services

_MEMBER_CHARS_MAX: Final = 36
_UNKNOWN_LEADER: Final = (-1, -1)
# Partitions that a request names: those of a session, and as many that it is to forget.
_NAMED_MAX: Final = 2 * SHARE_SESSION_PARTITIONS_MAX

_WORDS: Final = {
    ErrorCode.INVALID_REQUEST: "An offset lies after the last one that was acquired.",
    ErrorCode.INVALID_RECORD_STATE: "A record is not with this member, or was acknowledged.",
}

Codes = dict[Place, ErrorCode]


class Batch(Protocol):
    """As both requests have it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """KafkaError INVALID_REQUEST: the request names no group, or no member."""
    if not group_id or not group_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not member_id or not member_id.strip() or len(member_id) > _MEMBER_CHARS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group_id, member_id


def check_count(*named: Iterable[Any]) -> None:
    """KafkaError SHARE_SESSION_LIMIT_REACHED: more partitions than a session may have."""
    if sum(len(topic.partitions) for topics in named for topic in topics) > _NAMED_MAX:
        raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)


def code_of(error: Exception) -> ErrorCode:
    """For a client, of a partition that has failed. An exception of ours is noted."""
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    failures.note("a partition of a share group", error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def known(services: Services, places: Iterable[Place]) -> dict[Place, bool]:
    """Whether there are such partitions."""
    image = services.controller.image
    counts: dict[UUID, int] = {}
    found: dict[Place, bool] = {}
    for place in places:
        if place.topic_id not in counts:
            topic = image.topic_by_id(place.topic_id)
            counts[place.topic_id] = 0 if topic is None else len(topic.partitions)
        found[place] = 0 <= place.partition < counts[place.topic_id]
    return found


def acknowledgements_of(topics: Iterable[Any]) -> dict[Place, list[Acknowledgement]]:
    """Of each partition that the request names, in the order of their first names; without
    partitions of the zero id. One that is named twice has all of both."""
    asked: dict[Place, list[Acknowledgement]] = {}
    for topic in topics:
        topic_id: UUID | None = topic.topic_id
        if topic_id is None:
            continue
        for each in topic.partitions:
            here = asked.setdefault(Place(topic_id, each.partition_index), [])
            here += [
                Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in each.acknowledgement_batches
            ]
    return asked


class Partitions:
    """The partitions of a request, as its client may use them."""

    def __init__(
        self, services: Services, call: Call[Any], group_id: str, places: Iterable[Place]
    ) -> None:
        self._services: Final = services
        self._group_id: Final = group_id
        self._names: dict[Place, str] = {}
        self.refused: Codes = {}
        # Why the acknowledgements of a partition were refused, where its records decided that.
        self.words: dict[Place, str] = {}
        image = services.controller.image
        for place in places:
            topic = image.topic_by_id(place.topic_id)
            if topic is None:
                self.refused[place] = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                self._names[place] = topic.name
        topics = dict.fromkeys(self._names.values())
        hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, topics)
        for place, name in self._names.items():
            if name in hidden:
                self.refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(name, place.partition) is None:
                self.refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def key(self, place: Place) -> Key:
        return Key(self._group_id, place.topic_id, place.partition)

    def led(self, place: Place, share: ShareService) -> LedSharePartition:
        """The share-partition. KafkaError: its client may not use it, or this broker does not lead
        it."""
        return share.leaders.led(self.key(place), self._replica(place))

    def served(self, place: Place, share: ShareService) -> LedSharePartition:
        """The same, if a member has fetched from it. KafkaError UNKNOWN_TOPIC_OR_PARTITION, as
        Apache Kafka 4.3: none has."""
        found = share.leaders.served(self.key(place), self._replica(place))
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def _replica(self, place: Place) -> Any:
        if place in self.refused:
            raise KafkaError(self.refused[place])
        services = self._services
        replica: Any = led_replica(services, self._names[place], place.partition, NO_LEADER_EPOCH)
        if replica.topic_id != place.topic_id:  # the topic was deleted and created again
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return replica

    def leader(self, place: Place, code: ErrorCode) -> tuple[int, int]:
        """(id, leader epoch) for an answer with this code; (0, 0) where it is not needed."""
        if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return 0, 0
        name = self._names.get(place)
        found = None
        if name is not None:
            found = self._services.controller.image.partition(name, place.partition)
        return _UNKNOWN_LEADER if found is None else (found.leader, found.leader_epoch)


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoints:
    """Where the brokers are, as the client reaches them; to be made before it is answered."""

    def __init__(self, services: Services, call: Call[Any]) -> None:
        self._seen: Final = brokers_as_seen(services, call.request, services.controller.image)

    def of(self, node_ids: Iterable[int]) -> list[Endpoint]:
        return [
            Endpoint(node_id, *self._seen[node_id])
            for node_id in dict.fromkeys(node_ids)
            if node_id in self._seen
        ]


def acknowledge_all(
    share: ShareService,
    partitions: Partitions,
    owner: int,
    asked: Mapping[Place, list[Acknowledgement]],
    done: Callable[[Codes], object],
    *,
    renews: bool,
) -> None:
    """Acknowledge what each partition has; `done` gets the codes, once, perhaps from another
    thread."""
    answers = _Answers(done, len(asked))
    for place, batches in asked.items():
        token = partial(answers.add, place)
        try:
            code = check(batches, renews=renews)
            if code is ErrorCode.NONE:
                led = partitions.served(place, share)
                found = led.acknowledge(owner, batches, token)
                if found is None:
                    continue
                code = found
                if code in _WORDS:
                    partitions.words[place] = _WORDS[code]
        except Exception as error:  # of this partition: the others are acknowledged
            code = code_of(error)
        token(code)
    answers.all_begun()


class _Answers:
    def __init__(self, done: Callable[[Codes], object], count: int) -> None:
        self._done: Final = done
        self._lock: Final = threading.Lock()
        self._left = count + 1
        self._codes: Codes = {}

    def add(self, place: Place, code: ErrorCode) -> None:
        with self._lock:
            self._codes[place] = code
        self.all_begun()

    def all_begun(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._done(self._codes)
