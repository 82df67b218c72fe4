"""What a handler may touch: one object, built by the server, given to every handler.

Place in the flow: `registry.dispatch(services, request)` runs on a request-handler thread (Python)
for each request that the hot path does not do itself. A handler reads the request, reads the
published image or asks a partition's log, and answers; or it hands a question to the controller and
leaves, and the answer is sent from the controller's thread. It never waits.

The protocols below say which part of an object the handlers use, so that the tests can stand in a
small fake for each; the objects themselves belong to the packages further down. All of them may be
called from any handler thread at once. `config` is replaced, never changed, when a broker key is
altered, so a handler reads the attribute once per request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group.offsets_topic import OffsetsTopicCreation
from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.handlers.auto_topics import AutoTopicCreation
from kbroker.handlers.metadata_topics import TopicsKept
from kbroker.handlers.streams_topics import StreamsTopics

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.consumer_group.coordinator import ConsumerGroups
    from kbroker.coordinator.group.coordinator import GroupCoordinator
    from kbroker.coordinator.share.coordinator import ShareCoordinator
    from kbroker.coordinator.share.seams import Persister
    from kbroker.coordinator.share_group.coordinator import ShareGroups
    from kbroker.coordinator.streams_group.coordinator import StreamsGroups
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.engine.share.service import ShareService
    from kbroker.handlers.authentication import AuthenticationCounts
    from kbroker.handlers.delayed import Purgatories
    from kbroker.handlers.forwarding import Peers
    from kbroker.handlers.mutations import QuotasOfClients
    from kbroker.log.engine._results import DirectoryUse, MarkerAppended
    from kbroker.metadata.controller.acl_changes import CreateResults, DeleteResults
    from kbroker.metadata.controller.events import Charge
    from kbroker.metadata.controller.feature_changes import FeatureUpdate
    from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
    from kbroker.metadata.controller.token_changes import TokenEvent
    from kbroker.metadata.controller.user_changes import QuotaChange, UserChange, UserResults
    from kbroker.metadata.image import ClusterImage
    from kbroker.security.acl_filter import AclFilter
    from kbroker.security.acls import Acl
    from kbroker.security.audit import AuditLog
    from kbroker.security.rights import Authorizer
    from kbroker.security.session import Principal
    from kbroker.types import TopicPartition


NO_LEADER_EPOCH: Final = -1

# (replica, offset, timeout in ms, done): `done` is called once, now or on a handler's thread, with
# NONE when the logs of all live replicas begin at the offset or later, else with the reason.
AwaitLowWatermark = Callable[[Any, int, int, Callable[[ErrorCode], object]], None]

# (replica, offset, leader epoch since which this broker leads, timeout in ms, done): `done` is
# called once in the same way, when the followers have the batch that was appended there; else with
# a coordinator's error: 16 where this broker leads no more, 15 where it takes too long.
AwaitFollowers = Callable[[Any, int, int, int, Callable[[ErrorCode], object]], None]
# (partition of the offsets' topic, producer id, whether it is committed, offset of the marker).
MarkerWritten = Callable[[int, int, bool, int], object]
# (partition of __consumer_offsets, transactional id, producer id and epoch, version of the request,
# done): `done` is called once, on any thread: NONE if the partition is in the transaction, and the
# guard under which the log takes the batch.
VerifyOffsets = Callable[[int, str, int, int, int, Callable[[ErrorCode, int], None]], None]

# Node id to (host, port, rack).
BrokersSeen = Mapping[int, tuple[str, int, str | None]]


class ColdRequest(Protocol):
    """A cold request, as the compiled core hands it up."""

    @property
    def api_key(self) -> int: ...

    @property
    def api_version(self) -> int: ...

    @property
    def correlation_id(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def body(self) -> bytes:
        """What follows the request header and its tagged fields."""
        ...

    @property
    def connection_id(self) -> str: ...

    @property
    def listener(self) -> str: ...

    @property
    def principal(self) -> Principal:
        """Whose request it is."""
        ...

    @property
    def local_host(self) -> str: ...

    @property
    def local_port(self) -> int: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    def respond(self, body: bytes) -> None:
        """Send this body after the response header, in the connection's order; once only."""
        ...

    def throttle(self, throttle_ms: int) -> None:
        """Its answer, which is to come, says so, and the client is not read for so long after."""
        ...

    def close_connection(self, reason: str) -> None: ...


class LeaderEpochs(Protocol):
    """Which leader epoch wrote which part of a log."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `epoch`; (-1, -1) if unknown."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The epoch in which `offset` was or will be written, -1 if unknown."""
        ...


class LedReplica(Protocol):
    """What handlers ask of a replica that leads."""

    @property
    def epochs(self) -> LeaderEpochs: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def low_watermark(self) -> int:
        """The least log start of the live replicas; -1: one has not said it yet, or another broker
        leads."""
        ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record below the high watermark whose
        timestamp is not lower."""
        ...

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None: ...

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        transaction_version: int,
        now_ms: int,
        run: int,
        number: int,
    ) -> MarkerAppended:
        """The end of a producer's transaction; who answers for it waits for the followers."""
        ...

    def encode_producers(self) -> tuple[int, bytes]:
        """How many producers the log knows, and they as DescribeProducers has them."""
        ...


class Replicas(Protocol):
    def partition(self, topic: str, index: int) -> LedReplica | None: ...

    def use_of_directories(self, wanted: Set[TopicPartition] | None) -> Sequence[DirectoryUse]:
        """The data directories with the logs in them, all or those wanted."""
        ...

    def move(self, name: TopicPartition, path: str) -> None:
        """A replica's log is to be in that data directory, soon. KafkaError: why not."""
        ...

    def delete_records(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Move the starts of logs forward; where each is now, or why it was not moved."""
        ...


class Controller(Protocol):
    """The controller as handlers see it; each `done` runs on the controller's thread."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        ...

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration."""
        ...

    def create_topics(
        self,
        specs: Sequence[Any],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None: ...

    def create_partitions(
        self,
        wanted: Sequence[Any],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None: ...

    def delete_topics(
        self,
        topics: Sequence[str | UUID],
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None: ...

    def alter_topic_configs(
        self, changes: Sequence[Any], validate_only: bool, done: Callable[[Any], None]
    ) -> None: ...

    def alter_resource_configs(
        self, changes: Sequence[Any], validate_only: bool, done: Callable[[Any], None]
    ) -> None: ...

    def alter_in_sync(
        self,
        leader: int,
        broker_epoch: int,
        changes: Sequence[Any],
        done: Callable[[Any], None],
    ) -> None: ...

    def shut_down(self, node_id: int, broker_epoch: int, done: Callable[[Any], None]) -> None: ...

    def unregister_broker(self, node_id: int, done: Callable[[Any], None]) -> None: ...

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        validate_only: bool,
        done: Callable[[KafkaError | None], None],
    ) -> None: ...

    def create_acls(self, acls: Sequence[Acl], done: Callable[[CreateResults], None]) -> None: ...

    def delete_acls(
        self, filters: Sequence[AclFilter], done: Callable[[DeleteResults], None]
    ) -> None: ...

    def change_tokens(self, event: TokenEvent) -> None: ...

    def follow(self, update: ImageUpdate, done: Callable[[ImageAnswer], None]) -> None: ...

    def reassign(
        self, wanted: Sequence[Any], factor_may_change: bool, done: Callable[[Any], None]
    ) -> None: ...

    def alter_users(
        self, changes: Sequence[UserChange], done: Callable[[UserResults], None]
    ) -> None: ...

    def alter_quotas(
        self, changes: Sequence[QuotaChange], done: Callable[[UserResults], None]
    ) -> None: ...

    def elect_leaders(
        self, unclean: bool, partitions: Sequence[TopicPartition], done: Callable[[Any], None]
    ) -> None: ...


class ProducerIds(Protocol):
    def generate(self, done: Callable[[int | KafkaError], None]) -> None:
        """Call `done` with a producer id that was never given out before, perhaps at once."""
        ...


class Transactions(Protocol):
    """The transaction coordinator of this broker, which is there when the state topic is."""

    @property
    def coordinator(self) -> TransactionCoordinator | None: ...

    def create_topic(self, controller: Any, config: BrokerConfig, brokers: int) -> None:
        """Has the state topic created, with as many replicas as there are brokers at most."""
        ...


def no_share_groups() -> ShareGroups:
    raise InvariantError("there are no share groups")


def no_streams_groups() -> StreamsGroups:
    raise InvariantError("there are no streams groups")


class Share(Protocol):
    """What share groups need of this broker besides."""

    @property
    def coordinator(self) -> ShareCoordinator | None:
        """Of share state; it is there when the state topic is."""
        ...

    @property
    def persister(self) -> Persister:
        """Asks share coordinators, here or at other brokers."""
        ...

    def create_topic(self, controller: Any, config: BrokerConfig, brokers: int) -> None:
        """Has the state topic created, with as many replicas as there are brokers at most."""
        ...

    def latest_offsets(
        self,
        places: Iterable[TopicPartition],
        done: Callable[[Mapping[TopicPartition, int | ErrorCode]], None],
    ) -> None:
        """Where these end for consumers, at their leaders: `done` is called once, on any thread,
        with the end of each, or the error in its place."""
        ...

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have it done by a handler."""
        ...

    def has_left(self, request: ColdRequest) -> bool:
        """Whether the client of a request that was not answered yet has ended its connection, or
        its side of it: then it may still read."""
        ...


def no_share_service() -> ShareService:
    raise InvariantError("there are no share-partitions")


def no_consumer_groups() -> ConsumerGroups:
    raise InvariantError("there are no consumer groups")


@dataclass(slots=True)
class Services:
    """The broker, as its handlers see it."""

    config: BrokerConfig
    clock: Clock
    controller: Controller
    replicas: Replicas
    producer_ids: ProducerIds
    await_low_watermark: AwaitLowWatermark
    await_followers: AwaitFollowers
    wake: Callable[[Any], None]  # the requests that wait for a replica which has moved
    purgatories: Purgatories
    cluster_id: str
    node_id: int
    # This node's host and port as clients of this connection are to reach it.
    advertised: Callable[[ColdRequest], tuple[str, int]]
    groups: GroupCoordinator
    # Made at the first call; only a test of other handlers has none.
    consumer_groups: Callable[[], ConsumerGroups] = field(default=no_consumer_groups)
    share_groups: Callable[[], ShareGroups] = field(default=no_share_groups)
    streams_groups: Callable[[], StreamsGroups] = field(default=no_streams_groups)
    peers: Peers | None = None  # None: there are no other brokers
    authorizer: Authorizer | None = None  # None: every request is allowed
    audit: AuditLog | None = None  # None: no change is recorded
    quotas: QuotasOfClients | None = None  # None: there are none
    transactions: Transactions | None = None  # None: transactions are not served
    share: Share | None = None  # None: share groups are not served
    # Of the partitions that this broker leads; made at the first call.
    share_service: Callable[[], ShareService] = field(default=no_share_service)
    verify_offsets: VerifyOffsets | None = None  # None: it is not verified
    # By listener; empty where none authenticates.
    authentications: Callable[[], Mapping[str, AuthenticationCounts]] = dict
    topics_kept: TopicsKept = field(init=False)
    auto_topics: AutoTopicCreation = field(default_factory=AutoTopicCreation)
    streams_topics: StreamsTopics = field(default_factory=StreamsTopics)
    offsets: GroupTable = field(default_factory=GroupTable)
    marker_written: MarkerWritten = field(default=lambda *_: None)
    offsets_topic: OffsetsTopicCreation = field(default_factory=OffsetsTopicCreation)

    def __post_init__(self) -> None:
        self.topics_kept = TopicsKept(self.node_id)


def led_replica(services: Services, topic: str, index: int, leader_epoch: int) -> LedReplica:
    """The replica, if this broker leads the partition in the epoch that the client believes in.

    A client that does not say what it believes sends -1.
    """
    image = services.controller.image.partition(topic, index)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if leader_epoch != NO_LEADER_EPOCH:
        if leader_epoch < image.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if leader_epoch > image.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if image.leader != services.node_id:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica = services.replicas.partition(topic, index)
    if replica is None:
        # The image says that we lead it, but its log could not be opened or has failed since.
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if replica.leader_epoch != image.leader_epoch:
        # The replica gets its role before the image is published, or late, after a write that
        # hangs.
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return replica


def brokers_as_seen(services: Services, request: ColdRequest, image: ClusterImage) -> BrokersSeen:
    """Every live broker that the clients of this listener reach, in the order of the ids.

    This broker is listed under the address that the connection used unless one is configured; the
    others under the address that they registered for the listener.
    """
    own = services.advertised(request)
    seen: dict[int, tuple[str, int, str | None]] = {}
    for node_id, broker in sorted(image.brokers.items()):
        is_own = node_id == services.node_id
        address = own if is_own else broker.address_on(request.listener)
        if address is not None:
            seen[node_id] = (*address, broker.rack)
    seen.setdefault(services.node_id, (*own, None))
    return seen
