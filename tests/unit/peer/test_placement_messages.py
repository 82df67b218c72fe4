"""Reassignments and elections of our client, against kio in both directions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import placement_messages as messages
from kbroker.peer.versions import VERSIONS
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import kio_error, make, module
from tests.unit.peer.test_messages import A0, A1, B0, none, read_request, reader_of, versions

REASSIGN = ApiKey.ALTER_PARTITION_REASSIGNMENTS
LIST = ApiKey.LIST_PARTITION_REASSIGNMENTS
ELECT = ApiKey.ELECT_LEADERS


def test_we_speak_the_versions_that_we_serve() -> None:
    for api in (REASSIGN, LIST):
        assert VERSIONS[api] == SERVED[api][:2]
    assert VERSIONS[ELECT][1] == SERVED[ELECT][1]


@pytest.mark.parametrize("version", versions(REASSIGN))
def test_reassign_request(version: int) -> None:
    body = messages.encode_reassign(version, {A0: [3, 1], B0: [], A1: None}, timeout_ms=1500)
    request = read_request(REASSIGN, version, body)
    assert [
        (topic.name, [(each.partition_index, each.replicas) for each in topic.partitions])
        for topic in request.topics
    ] == [("a", [(0, (3, 1)), (1, None)]), ("b", [(0, ())])]
    assert request.timeout == timedelta(milliseconds=1500)
    assert getattr(request, "allow_replication_factor_change", True)


@pytest.mark.parametrize("version", versions(REASSIGN))
def test_reassign_response(version: int) -> None:
    where = module(REASSIGN, version, "response")
    refusal = kio_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    partitions = (
        make(where, "ReassignablePartitionResponse", partition_index=0, error_code=none(),
             error_message=None),
        make(where, "ReassignablePartitionResponse", partition_index=1, error_code=refusal,
             error_message="no"),
    )  # fmt: skip
    responses = (make(where, "ReassignableTopicResponse", name="a", partitions=partitions),)

    def answer(error: Any) -> Any:
        return make(where, "AlterPartitionReassignmentsResponse", throttle_time=timedelta(0),
                    error_code=error, error_message="why", responses=responses)  # fmt: skip

    assert messages.decode_reassign(reader_of(REASSIGN, version, answer(none())), version) == [
        (A0, ErrorCode.NONE, None),
        (A1, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no"),
    ]
    moved = answer(kio_error(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(KafkaError, match="why"):
        messages.decode_reassign(reader_of(REASSIGN, version, moved), version)


def test_list_of_reassignments() -> None:
    request = read_request(LIST, 0, messages.encode_list_reassignments(0, timeout_ms=1500))
    assert request.topics is None
    where = module(LIST, 0, "response")
    partition = make(where, "OngoingPartitionReassignment", partition_index=1, replicas=(4, 2, 1),
                     adding_replicas=(4,), removing_replicas=(1,))  # fmt: skip
    topics = (make(where, "OngoingTopicReassignment", name="a", partitions=(partition,)),)
    answer = make(where, "ListPartitionReassignmentsResponse", throttle_time=timedelta(0),
                  error_code=none(), error_message=None, topics=topics)  # fmt: skip
    found = messages.decode_list_reassignments(reader_of(LIST, 0, answer), 0)
    assert found == {A1: ((4, 2, 1), (4,), (1,))}


@pytest.mark.parametrize("version", versions(ELECT))
def test_elect_leaders(version: int) -> None:
    body = messages.encode_elect_leaders(
        version, messages.UNCLEAN_ELECTION, [A0, B0, A1], timeout_ms=1500
    )
    request = read_request(ELECT, version, body)
    assert request.election_type == messages.UNCLEAN_ELECTION
    assert [(each.topic, each.partitions) for each in request.topic_partitions] == [
        ("a", (0, 1)),
        ("b", (0,)),
    ]
    body = messages.encode_elect_leaders(version, messages.PREFERRED_ELECTION, None, timeout_ms=9)
    assert read_request(ELECT, version, body).topic_partitions is None

    where = module(ELECT, version, "response")
    refusal = kio_error(ErrorCode.ELECTION_NOT_NEEDED)
    partition = make(where, "PartitionResult", partition_id=1, error_code=refusal,
                     error_message="no")  # fmt: skip
    topics = (make(where, "ReplicaElectionResult", topic="a", partition_result=(partition,)),)
    answer = make(where, "ElectLeadersResponse", throttle_time=timedelta(0), error_code=none(),
                  replica_election_results=topics)  # fmt: skip
    reader = reader_of(ELECT, version, answer)
    assert messages.decode_elect_leaders(reader, version) == [
        (A1, ErrorCode.ELECTION_NOT_NEEDED, "no")
    ]


@pytest.mark.parametrize(
    ("api", "decode"),
    [
        (REASSIGN, messages.decode_reassign),
        (LIST, messages.decode_list_reassignments),
        (ELECT, messages.decode_elect_leaders),
    ],
)
@settings(deadline=None)  # the first example imports a library
@given(data=st.binary(max_size=80), high=st.booleans())
def test_hostile_responses_end_in_an_error(
    api: ApiKey, decode: Any, data: bytes, high: bool
) -> None:
    version = VERSIONS[api][1 if high else 0]
    try:
        decode(Reader(data, flexible=is_flexible(api, version)), version)
    except (ProtocolError, KafkaError):
        pass  # an answer; anything else is a defect
