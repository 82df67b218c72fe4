"""WriteTxnMarkers (27): transactions are over in the partitions that this broker leads.

From the coordinator of each, on whichever broker that is, and from `kafka-transactions abort`. A
marker is appended in each partition that it names and stays there whatever follows: it is as with
acks=all, so a partition is answered when its followers have it, or with 20 when too few of them are
in sync. After FOLLOWERS_WAIT_MS the answer of a partition is 7: all markers of a request are
answered together, and slow followers of one partition would hold up other transactions for as long
as `request.timeout.ms`, after which the coordinator does not wait any more. Where the append is
refused, the error is the partition's: 47 for the producer's epoch, 52 for the coordinator's, 6, 19,
3, 56; all others go on. A marker that no producer can have is refused with -1, as in Apache Kafka;
that then refuses the other markers of the request as well, and of an id below -1 appends a batch
that ends nothing. Which error is tried again is the sender's matter. The results of one producer
are one entry in the answer, of two markers in one partition the later one's.

The group coordinator is notified of markers in the topic of offsets, in the order of the log: what
was committed in the transaction counts from then on, or never did.

Any handler thread; the answer comes from another one where followers are waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import may_on_cluster
from kbroker.handlers.services import led_replica
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.protocol import messages
from kbroker.security.rights import Operation
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import LedReplica, Services
    from kbroker.protocol.messages.write_txn_markers import Marker, Request, Response, TopicResult

# By producer id, what became of its marker in each partition.
Results = dict[int, dict[TopicPartition, ErrorCode]]
_NO_LEADER_EPOCH: Final = -1
_NO_PRODUCER_EPOCH: Final = -1
FOLLOWERS_WAIT_MS: Final = 5_000
_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT


def handle(services: Services, call: Call[Request]) -> None:
    # Tools that end a hanging transaction have ALTER, brokers have CLUSTER_ACTION.
    if not may_on_cluster(services, call, Operation.ALTER, quiet=True) and not may_on_cluster(
        services, call, Operation.CLUSTER_ACTION
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def done(results: Results) -> None:
        call.answer(_response(results))

    write_markers(services, call.message.markers, done)


def write_markers(
    services: Services, markers: Sequence[Marker], done: Callable[[Results], None]
) -> None:
    """Append the markers here; `done` is called once, now or on another thread, when all that are
    appended have reached the followers, or it is known that they will not."""
    writing = _Writing(done)
    for marker in markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                writing.begin()
                _write(services, marker, TopicPartition(topic.name, index), writing)
    writing.all_begun()


class _Writing:
    """The appends of one request that are not over yet."""

    def __init__(self, done: Callable[[Results], None]) -> None:
        self._done: Final = done
        self._lock: Final = threading.Lock()
        self._left = 1  # more may begin
        self._results: Results = {}

    def begin(self) -> None:
        with self._lock:
            self._left += 1

    def over(self, producer_id: int, name: TopicPartition, code: ErrorCode) -> None:
        with self._lock:
            self._results.setdefault(producer_id, {})[name] = code
        self.all_begun()

    def all_begun(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._done(self._results)


def _write(services: Services, marker: Marker, name: TopicPartition, writing: _Writing) -> None:
    over = partial(writing.over, marker.producer_id, name)
    if not _may_be_appended(marker):
        over(ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    try:
        replica = led_replica(services, *name, _NO_LEADER_EPOCH)
    except KafkaError as error:
        over(error.code)
        return
    appended = replica.append_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        committed=marker.transaction_result,
        transaction_version=marker.transaction_version,
        now_ms=services.clock.wall_ms(),
        run=marker.coordinator_run,
        number=marker.outcome_number,
    )
    if appended.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        over(ErrorCode.NONE)  # its transaction is over here, and the next one is open
        return
    if appended.error is not ErrorCode.NONE:
        over(appended.error)
        return
    if name.topic == OFFSETS_TOPIC:
        services.marker_written(
            name.partition, marker.producer_id, marker.transaction_result, appended.offset
        )
    services.wake(replica)
    if appended.led_since < 0:
        over(ErrorCode.NONE)
    else:
        _await_followers(services, replica, appended.offset, appended.led_since, over)


def _may_be_appended(marker: Marker) -> bool:
    """An epoch below -1 is the log's to refuse: it is older than any."""
    return (
        marker.producer_id >= 0
        and marker.producer_epoch != _NO_PRODUCER_EPOCH
        and marker.transaction_version >= 0
    )


def _await_followers(
    services: Services,
    replica: LedReplica,
    offset: int,
    led_since: int,
    over: Callable[[ErrorCode], None],
) -> None:
    timeout_ms = min(FOLLOWERS_WAIT_MS, services.config["request.timeout.ms"])
    ends_ms = services.clock.monotonic_ms() + timeout_ms

    def settled(code: ErrorCode) -> None:
        """The wait ends with a coordinator's errors."""
        if code is ErrorCode.NOT_COORDINATOR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            is_late = services.clock.monotonic_ms() >= ends_ms
            code = _TIMED_OUT if is_late else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        over(code)

    services.await_followers(replica, offset, led_since, timeout_ms, settled)


def _response(results: Results) -> Response:
    table = messages.write_txn_markers
    return table.Response(
        markers=[
            table.MarkerResult(producer_id=producer_id, topics=_topics(partitions))
            for producer_id, partitions in results.items()
        ]
    )


def _topics(partitions: Mapping[TopicPartition, ErrorCode]) -> list[TopicResult]:
    table = messages.write_txn_markers
    by_name: dict[str, TopicResult] = {}
    for (topic, index), code in partitions.items():
        if topic not in by_name:
            by_name[topic] = table.TopicResult(name=topic, partitions=[])
        by_name[topic].partitions.append(
            table.PartitionResult(partition_index=index, error_code=code)
        )
    return list(by_name.values())
