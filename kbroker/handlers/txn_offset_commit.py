"""TxnOffsetCommit (28): how far a group has read, as part of a producer's transaction (KIP-98).

The offsets are written to the group's partition of `__consumer_offsets` as a batch of the producer.
They are pending until the transaction ends: its marker in that partition makes them hold, or drops
them. So the partition has to be part of the transaction. The transaction's coordinator is asked for
that (`Services.verify_offsets`), and from version 5 on it adds the partition where it is missing;
then the group is asked whether the member may commit (from version 3 on, KIP-447), and once more
under the lock under which the offsets are written.

A topic or partition that is not there is refused alone (3), and so is a text longer than
`offset.metadata.max.bytes` (12); every other error is that of all the others.

Any handler thread, then that on which a verification ends. Holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.messages import CommitAsked
from kbroker.coordinator.group.seams import Committer
from kbroker.coordinator.runtime._shard_table import Written, partition_for
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.txn_offset_commit import (
        Request,
        Response,
        TxnOffsetCommitRequestPartition,
    )

_NO_EXPIRY: Final = -1
# A group may change between the check and the write, and is then asked again.
_CHECKS_MAX: Final = 3
_SINCE_LOADING: Final = 2
NO_GUARD_NEEDED: Final = -1  # of a batch whose transaction is not verified
_SINCE_ABORTABLE: Final = 4
_SINCE_ADDED: Final = 5
# The answer of a verification, where clients of this API do not know it or would do the wrong
# thing, and the answer of Apache Kafka to them instead. The transaction's coordinator is not the
# one that the client asks.
_VERIFIED: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}

# Of each partition that the request names, in its order.
_Errors = list[ErrorCode]


def handle(services: Services, call: Call[Request]) -> None:
    errors, offsets = _sorted_out(services, call)
    if not offsets:
        _answer(call, errors)
        return
    request = call.message
    if not request.group_id:
        _answer(call, _others(errors, ErrorCode.INVALID_GROUP_ID))
        return
    count = services.offsets.partition_count
    if services.verify_offsets is None or not count:
        _commit(services, call, errors, offsets, NO_GUARD_NEEDED)
        return

    def verified(code: ErrorCode, guard: int) -> None:
        if code:
            _answer(call, _others(errors, _known(_verified(code, call.version), call.version)))
        else:
            _commit(services, call, errors, offsets, guard)

    services.verify_offsets(
        partition_for(request.group_id, count),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        call.version,
        verified,
    )


def _sorted_out(services: Services, call: Call[Request]) -> tuple[_Errors, list[CommittedOffset]]:
    """The error of each partition that is named, as far as it is its own, and what is to be
    written."""
    image = services.controller.image
    longest = services.config["offset.metadata.max.bytes"]
    now_ms = services.clock.wall_ms()
    errors: _Errors = []
    offsets: list[CommittedOffset] = []
    names = [asked.name for asked in call.message.topics]
    hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, names)
    for asked in call.message.topics:
        topic = image.topic(asked.name)
        count = 0 if topic is None else len(topic.partitions)
        for each in asked.partitions:
            if asked.name in hidden:
                errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None or not 0 <= each.partition_index < count:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif _chars(each) > longest:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                offsets.append(_committed(asked.name, topic.topic_id.bytes, each, now_ms))
    return errors, offsets


def _commit(
    services: Services,
    call: Call[Request],
    errors: _Errors,
    offsets: list[CommittedOffset],
    guard: int,
) -> None:
    request = call.message
    member = request.member_id, request.group_instance_id, request.generation_id
    code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the group changes faster than it is asked
    written = Written()
    for times in range(_CHECKS_MAX):
        admission = services.groups.admit_commit(
            CommitAsked(
                request.group_id,
                *member,
                partial(_named, offsets),
                call.version,
                in_transaction=True,
            )
        )
        if admission.code:
            _answer(call, _others(errors, _known(admission.code, call.version)))
            return
        committer = Committer(
            request.member_id,
            request.group_instance_id,
            admission.generation,
            checked_twice=times > 0 or admission.is_final,
            in_transaction=True,
        )
        refused = services.offsets.commit_in_transaction(
            request.group_id,
            offsets,
            request.producer_id,
            request.producer_epoch,
            written,
            committer,
            guard,
        )
        if refused != ErrorCode.ILLEGAL_GENERATION:
            code = refused
            break
    answer: Callable[[ErrorCode], object] = partial(_written, call, errors)
    services.offsets.when_replicated(written, code, answer)


def _named(offsets: list[CommittedOffset]) -> Iterator[tuple[UUID, int]]:
    for each in offsets:
        if each.topic_id is not None:
            yield UUID(bytes=each.topic_id), each.partition


def _written(call: Call[Request], errors: _Errors, code: ErrorCode) -> None:
    _answer(call, _others(errors, _known(code, call.version)) if code else errors)


def _others(errors: _Errors, code: ErrorCode) -> _Errors:
    """A partition without an error of its own has this one."""
    return [error or code for error in errors]


def _verified(code: ErrorCode, version: int) -> ErrorCode:
    """The answer for one of a verification."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _SINCE_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _SINCE_ADDED:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _VERIFIED.get(code, code)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """Clients of the first versions do not know that a coordinator loads."""
    if version < _SINCE_LOADING and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _committed(
    topic: str, topic_id: bytes, partition: TxnOffsetCommitRequestPartition, now_ms: int
) -> CommittedOffset:
    return CommittedOffset(
        topic=topic,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_ms=now_ms,
        expire_ms=_NO_EXPIRY,
        topic_id=topic_id,
    )


def _chars(partition: TxnOffsetCommitRequestPartition) -> int:
    """The length of its metadata as Java counts."""
    text = partition.committed_metadata or ""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def _answer(call: Call[Request], errors: _Errors) -> None:
    call.answer(_response(call, errors))


def _response(call: Call[Request], errors: _Errors) -> Response:
    """The topics and partitions as the request names them."""
    table = messages.txn_offset_commit
    left = iter(errors)
    return table.Response(
        topics=[
            table.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    table.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=next(left)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in call.message.topics
        ]
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    named = sum(len(topic.partitions) for topic in call.message.topics)
    return _response(call, [code] * named)
