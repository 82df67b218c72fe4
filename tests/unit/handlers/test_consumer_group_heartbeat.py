"""ConsumerGroupHeartbeat: what a request costs before the group sees it."""

from __future__ import annotations

import time
from uuid import UUID

from kbroker.handlers.consumer_group_heartbeat import _owned
from kbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions

T = UUID(int=7)


def test_a_topic_that_is_named_often_is_put_together_once() -> None:
    """Each entry of one partition: the work is that of the list, not of its square."""
    entries = [TopicPartitions(topic_id=T, partitions=[index]) for index in range(40_000)]
    began = time.thread_time()
    assert _owned(entries) == {T: frozenset(range(40_000))}
    assert time.thread_time() - began < 2


def test_no_list_is_not_an_empty_one() -> None:
    assert _owned(None) is None
    assert _owned([]) == {}
    assert _owned([TopicPartitions(topic_id=T, partitions=[])]) == {}
