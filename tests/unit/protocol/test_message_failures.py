"""The answer to a request that fails as a whole, in the shape of its response."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.protocol.messages.failures import failed

CODE = ErrorCode.REQUEST_TIMED_OUT


def test_a_response_with_a_code_of_its_own_has_it_there() -> None:
    table = messages.join_group
    request = table.Request(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="", protocols=[]
    )
    answered = failed(table.Response, request, CODE)
    assert (answered.error_code, answered.member_id, answered.members) == (CODE, "m", [])


def test_every_item_that_was_named_has_the_code_once() -> None:
    table = messages.delete_records
    partitions = [table.Partition(partition_index=i, offset=5) for i in (3, 1, 3)]
    request = table.Request(topics=[table.Topic(name="t", partitions=partitions)], timeout_ms=1)
    (topic,) = failed(table.Response, request, CODE).topics
    assert topic.name == "t"
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(3, CODE), (1, CODE)]


def test_the_message_goes_where_the_response_has_one() -> None:
    table = messages.create_topics
    topic = table.Topic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    (answered,) = failed(table.Response, table.Request(topics=[topic]), CODE, "too late").topics
    assert (answered.name, answered.error_message) == ("t", "too late")
    assert answered.num_partitions == -1, "only what names the topic is taken from the request"


def test_names_alone_are_items_too() -> None:
    table = messages.delete_topics
    by_name = table.Request(topic_names=["a", "b", "a"], timeout_ms=1)
    assert [t.name for t in failed(table.Response, by_name, CODE).responses] == ["a", "b"]


def test_null_names_nothing() -> None:
    table = messages.elect_leaders
    request = table.Request(topic_partitions=None)
    assert failed(table.Response, request, CODE).replica_election_results == []
