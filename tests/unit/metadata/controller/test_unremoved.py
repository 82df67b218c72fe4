"""Deleted topics whose logs cannot be removed yet: each is kept in mind, by its id."""

from __future__ import annotations

from uuid import UUID

from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import ClusterImage, ImageDelta
from kbroker.types import TopicPartition

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
