"""Error answers of Produce and Fetch, which the broker itself makes in C only.

Everything that the request names has the error; nothing is written or read. The other APIs bring
such a function with their handler.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.services import ColdRequest
from kbroker.protocol.messages import fetch, produce
from kbroker.protocol.wire import ProtocolError

NO_OFFSET = -1


def produce_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes | None:
    """None: with acks=0 there is no answer."""
    asked = produce.Request.decode(request.body, request.api_version)
    if asked.acks == 0:
        return None
    responses = [
        produce.TopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                produce.PartitionResponse(
                    index=partition.index,
                    error_code=int(code),
                    error_message=message or None,
                    current_leader=None,
                )
                for partition in topic.partition_data
            ],
        )
        for topic in asked.topic_data
    ]
    return produce.Response(responses=responses).encode(request.api_version)


def fetch_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """A fetch that names nothing goes on in its session, so it is sent back to name everything."""
    asked = fetch.Request.decode(request.body, request.api_version)
    responses = [
        fetch.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                fetch.PartitionData(
                    partition_index=partition.partition,
                    error_code=int(code),
                    high_watermark=NO_OFFSET,
                    diverging_epoch=None,
                    current_leader=None,
                    snapshot_id=None,
                    records=b"",
                )
                for partition in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    whole = ErrorCode.NONE if responses else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    response = fetch.Response(error_code=int(whole), responses=responses)
    return response.encode(request.api_version)


def names_something(request: ColdRequest) -> bool:
    """Whether a Fetch names partitions; one that goes on in its session does not."""
    try:
        return bool(fetch.Request.decode(request.body, request.api_version).topics)
    except ProtocolError:
        return True
