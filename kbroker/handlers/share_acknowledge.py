"""ShareAcknowledge (79): what became of records that a member of a share group has acquired.

The request is the next one of the member's share session, which only ShareFetch opens. The answer
comes when the share coordinator has the results. The last request of a session ends it then, and
its records are available to other members. Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.share_partitions import (
    Endpoints,
    Partitions,
    acknowledge_all,
    acknowledgements_of,
    check_count,
    check_member,
)
from kbroker.protocol import messages
from kbroker.replica.share.sessions import CLOSES, OPENS

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.handlers.share_partitions import Codes
    from kbroker.protocol.messages.share_acknowledge import PartitionData, Request


def handle(services: Services, call: Call[Request]) -> None:
    request, share = call.message, services.share_service()
    group_id, member_id = check_member(request.group_id, request.member_id)
    if request.share_session_epoch == OPENS:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    check_count(request.topics)
    session = share.sessions.next(group_id, member_id, request.share_session_epoch)
    named = acknowledgements_of(request.topics)
    asked = {place: batches for place, batches in named.items() if batches}
    request.topics = []  # it may wait long
    partitions = Partitions(services, call, group_id, asked)
    endpoints = Endpoints(services, call)

    def done(codes: Codes) -> None:
        with call:
            if request.share_session_epoch == CLOSES:
                share.end_session(session)
            _answer(call, partitions, endpoints, codes, share.settings(group_id).lock_ms)

    acknowledge_all(share, partitions, session.number, asked, done, renews=request.is_renew_ack)


def _answer(
    call: Call[Request], partitions: Partitions, endpoints: Endpoints, codes: Codes, lock_ms: int
) -> None:
    table = messages.share_acknowledge
    topics: dict[UUID, list[PartitionData]] = {}
    leaders = []
    for place, code in codes.items():
        leader_id, leader_epoch = partitions.leader(place, code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leaders.append(leader_id)
        topics.setdefault(place.topic_id, []).append(
            table.PartitionData(
                partition_index=place.partition,
                error_code=code,
                error_message=partitions.words.get(place),
                current_leader=table.LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                ),
            )
        )
    call.answer(
        table.Response(
            acquisition_lock_timeout_ms=lock_ms,
            responses=[
                table.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=each)
                for topic_id, each in topics.items()
            ],
            node_endpoints=[
                table.NodeEndpoint(
                    node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
                )
                for each in endpoints.of(leaders)
            ],
        )
    )
