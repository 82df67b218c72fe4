from __future__ import annotations

from dataclasses import FrozenInstanceError
from random import Random
from uuid import UUID

import pytest

from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import (
    ZERO_UUID,
    BrokerImage,
    ClusterImage,
    TopicImage,
    delta_between,
)


def topic(name: str, number: int = 1, partitions: int = 2, **configs: str) -> TopicImage:
    return new_topic_image(name, UUID(int=number << 64), [(1,)] * partitions, configs)


def test_lookups_by_name_and_by_id() -> None:
    a = topic("a", 1)
    image = ClusterImage().with_topics([a, topic("b", 2, partitions=3)])
    assert image.topic("a") is a
    assert image.topic_by_id(a.topic_id) is a
    assert image.topic("c") is None
    assert image.topic_by_id(ZERO_UUID) is None
    assert image.partition("a", 1) is a.partitions[1]
    for index in (-1, 2, 2**31):
        assert image.partition("a", index) is None
    assert image.partition("c", 0) is None
    assert image.partition_count == 5
    assert image.offline_partition_count == 0


def test_an_image_never_changes() -> None:
    empty = ClusterImage()
    image = empty.with_topics([topic("a")]).with_brokers([BrokerImage(0)])
    assert not empty.topics and not empty.brokers
    with pytest.raises(FrozenInstanceError):
        image.version = 2  # type: ignore[misc]
    for mapping in (image.topics, image.brokers, image.topic_ids, image.topics["a"].configs):
        with pytest.raises(TypeError):
            mapping["x"] = None  # type: ignore[index]


def test_a_topic_that_is_replaced_leaves_no_old_id() -> None:
    image = ClusterImage().with_topics([topic("a", 1)]).with_topics([topic("a", 2)])
    assert list(image.topic_ids) == [UUID(int=2 << 64)]
    assert image.without_topics(["a", "none"]).topic_ids == {}


def test_names_and_ids_agree_after_every_change() -> None:
    """Each change updates both, without a look at the other topics."""
    dice = Random(7)
    image = ClusterImage()
    for number in range(1, 200):
        names = [dice.choice("abcdefgh") for _ in range(dice.randrange(4))]
        if dice.random() < 0.6:
            image = image.with_topics(topic(name, number * 4 + i) for i, name in enumerate(names))
        else:
            image = image.without_topics([*names, "none"])
        assert image.topic_ids == {each.topic_id: name for name, each in image.topics.items()}


def test_the_delta_between_two_images_names_the_work() -> None:
    same, gone, again_old = topic("same", 1), topic("gone", 2), topic("again", 3)
    led, set_ = topic("led", 4), topic("set", 5)
    old = ClusterImage().with_topics([same, gone, again_old, led, set_])
    again_new, new = topic("again", 6), topic("new", 7)
    led_by_other = topic("led", 4, partitions=3)
    set_new = set_.with_configs({"retention.ms": "1"})
    equal = topic("same", 1)
    delta = delta_between(
        old, ClusterImage().with_topics([equal, again_new, new, led_by_other, set_new])
    )
    assert delta.deleted == (gone, again_old)
    assert delta.created == (again_new, new)
    assert delta.changed == (led_by_other,)
    assert delta.reconfigured == (set_new,)
    assert not delta.from_store
    assert not delta_between(old, old)


def test_internal_topics_are_known_by_name() -> None:
    assert topic("__consumer_offsets").internal
    assert not topic("__consumer_offset").internal
