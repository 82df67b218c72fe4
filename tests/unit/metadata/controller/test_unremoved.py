"""Deleted topics whose logs cannot be removed yet: each is kept in mind, by its id."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kbroker.metadata.controller import records
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import ClusterImage, ImageDelta, TopicImage
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.harness import OneBroker, eventually

FIRST, SECOND = (new_topic_image("t", UUID(int=number), [(0,)], {}) for number in (1, 2))


def test_a_namesake_that_is_removed_is_not_the_one_that_is_not() -> None:
    stuck = {FIRST.topic_id}
    removed: list[UUID] = []

    def apply(image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        for topic in delta.deleted:
            if topic.topic_id in stuck:
                raise OSError("it is being read still")
            removed.append(topic.topic_id)
        return []

    propagation = Propagation(apply)
    assert propagation.create([FIRST]) == {}
    assert propagation.delete([FIRST]) == []
    assert propagation.create([SECOND]) == {}
    assert propagation.delete([SECOND]) == [SECOND]
    assert propagation.unremoved(["t", "u"]) == [FIRST]
    stuck.clear()
    assert propagation.delete(propagation.unremoved(["t"])) == [FIRST]
    assert removed == [SECOND.topic_id, FIRST.topic_id] and propagation.unremoved(["t"]) == []


def test_topics_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 500 of a request that was a third of its time."""
    topics = [new_topic_image(str(number), UUID(int=number), [(0,)], {}) for number in range(1, 9)]
    propagation = Propagation(lambda image, delta: [])
    assert propagation.create(topics) == {}
    compared: list[object] = []
    monkeypatch.setattr(TopicImage, "__eq__", lambda one, other: compared.append(other))
    removed = propagation.delete(topics)
    assert len(removed) == len(topics) and not compared
    assert propagation.image.topic_ids == {} and propagation.unremoved() == []


def test_a_removal_that_is_late_keeps_its_tombstone_until_it_is_over(tmp_path: Path) -> None:
    """A disk does not answer; the deletion is answered, and the next start would finish it."""
    broker = OneBroker(tmp_path)
    broker.start()
    try:
        broker.create("t", "u")
        late = broker.image.topics["t"].topic_id
        broker.replicas.removing = {late}
        assert [each.error for each in broker.delete("t", "u")] == [0, 0]
        assert broker.image.topics == {}
        assert len(broker.embedded.children(records.DELETED_TOPICS)) == 1
        broker.controller.logs_ready([])  # of another: it is not over
        broker.replicas.removing = set()
        broker.controller.logs_ready([])
        eventually(lambda: broker.embedded.children(records.DELETED_TOPICS) == [])
        assert [each.topic_id for each in broker.replicas.deleted_last] == [late]
    finally:
        broker.stop()
