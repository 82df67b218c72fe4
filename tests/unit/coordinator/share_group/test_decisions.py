"""What is decided of a share group, by itself."""

from __future__ import annotations

import pytest

from kbroker.coordinator.consumer_group.decisions import EPOCH_MAX
from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.consumer_group.images import GroupImage, TargetEpoch
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.group.group_records import RecordError
from kbroker.coordinator.share_group import decisions
from kbroker.coordinator.share_group.images import (
    CurrentImage,
    Kind,
    MemberImage,
    StateTopics,
    TopicPartitions,
)
from kbroker.coordinator.share_group.records import (
    change_of,
    decode_key,
    record_bytes,
    record_of,
)
from kbroker.coordinator.share_group.state import Draft, ShareGroupState
from kbroker.metadata.image import ClusterImage
from tests.unit.coordinator.consumer_group.world import topic_of


def state_of(*names: str) -> ShareGroupState:
    state = ShareGroupState()
    state.apply(AnyChange(Kind.MEMBER, "a", MemberImage(None, "client", "/host", names)))
    return state


def test_many_topics_begin_in_one_change() -> None:
    names = tuple(f"t{number:03}" for number in range(300))
    image = ClusterImage().with_topics([topic_of(name, 2) for name in names])
    draft = Draft(state_of(*names))
    decisions.begin_states(draft, Topics(lambda: image).seen())
    assert len(draft.undo) == 1
    begins = draft.state.state_topics.initializing
    assert sorted(some.name for some in begins.values()) == list(names)
    assert {some.partitions for some in begins.values()} == {frozenset({0, 1})}


def test_partitions_that_began_are_given_though_others_did_not() -> None:
    image = ClusterImage().with_topics([topic_of("t", 4), topic_of("u", 1)])
    state = state_of("t", "u")
    topic = image.topic("t")
    assert topic is not None
    begun = {topic.topic_id: TopicPartitions("t", frozenset({0, 2, 3, 9}))}
    state.apply(AnyChange(Kind.STATE_TOPICS, "", StateTopics(initialized=begun)))
    found = decisions.assignable(state, Topics(lambda: image).seen())
    assert found == {topic.topic_id: frozenset({0, 2, 3})}


def test_epochs_begin_again_after_the_last_one() -> None:
    state = state_of("t")
    for change in (
        AnyChange(Kind.GROUP, "", GroupImage(EPOCH_MAX, 0)),
        AnyChange(Kind.TARGET_EPOCH, "", TargetEpoch(EPOCH_MAX, 0)),
        AnyChange(Kind.CURRENT, "a", CurrentImage(EPOCH_MAX, EPOCH_MAX - 1)),
        AnyChange(Kind.MEMBER, "b", state.members["a"]),
    ):
        state.apply(change)
    topics = Topics(ClusterImage).seen()
    draft = Draft(state)
    decisions.removed(draft, ["b"], topics)
    assert (state.epoch, state.assignment_epoch) == (2, 1)
    assert state.current_of("a") == CurrentImage(1, -1)
    assert not decisions.assigned(draft, EPOCH_MAX, {}, 0)
    assert decisions.assigned(draft, 2, {}, 0)


def test_values_of_later_versions_are_read_as_the_one_that_is_known() -> None:
    change = AnyChange(Kind.GROUP, "", GroupImage(5, 7))
    key, value = record_of("g", change)
    assert value is not None
    read = decode_key(key)
    assert read is not None
    assert change_of(read, b"\x00\x03" + value[2:]) == change
    with pytest.raises(RecordError):
        change_of(read, b"\xff\xff" + value[2:])


def test_as_many_topics_begin_as_the_log_takes_in_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = tuple(f"t{number:02}" for number in range(40))
    image = ClusterImage().with_topics([topic_of(name, 30) for name in names])
    monkeypatch.setattr(decisions, "BATCH_BYTES_MAX", 3_000)
    state = state_of(*names)
    topics = Topics(lambda: image).seen()
    for _ in range(2):
        left = decisions.begin_states(Draft(state), topics)
        begins = state.state_topics.initializing
        assert len(begins) == len(names) - left == 17
        change = AnyChange(Kind.STATE_TOPICS, "", state.state_topics)
        assert 2_000 < record_bytes(change) < 3_000
    draft = Draft(state)
    decisions.states_came(draft, {id_: frozenset({0}) for id_ in begins}, {}, topics)
    assert record_bytes(AnyChange(Kind.STATE_TOPICS, "", state.state_topics)) < 3_000
