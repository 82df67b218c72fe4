"""The bytes of all settings together have a bound."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NoReturn
from unittest.mock import patch

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.image import (
    OFFSETS_TOPIC,
    ClusterImage,
    ConfigKind,
    ConfigResource,
    TopicImage,
    new_uuid,
)
from tests.unit.metadata.controller.harness import OneBroker

TEN = {"12345": "67890"}
TWENTY = {"12345": "67890abcdefghij"}


def image() -> ClusterImage:
    topic = new_topic_image("t", new_uuid(), [(1,)], TEN)
    configs = {ConfigResource(ConfigKind.BROKER, "1"): TEN}
    return ClusterImage().with_topics([topic]).with_configs(configs)


def test_settings_are_counted_over_all_resources() -> None:
    room = SettingsRoom(image(), bytes_max=30)
    assert room.take({}, TEN) is None
    refused = room.take({}, {"k": ""})
    assert isinstance(refused, KafkaError) and refused.code is ErrorCode.INVALID_CONFIG
    assert "31 bytes of at most 30" in refused.message


def test_shorter_settings_are_taken_at_any_time_and_make_room() -> None:
    room = SettingsRoom(image(), bytes_max=10)  # a bound that came later
    assert room.take({}, TEN) is not None
    assert room.take(TEN, {}) is None
    assert room.take(TEN, {}) is None
    assert room.take({}, TEN) is None


def test_refused_settings_take_no_room() -> None:
    room = SettingsRoom(ClusterImage(), bytes_max=15)
    assert room.take({}, TWENTY) is not None
    assert room.take({}, TEN) is None
    assert room.take(TEN, TWENTY) is not None


def counted(image: ClusterImage) -> int:
    configs = [*(topic.configs for topic in image.topics.values()), *image.configs.values()]
    return sum(len(key) + len(value.encode()) for each in configs for key, value in each.items())


def test_an_image_knows_the_bytes_of_its_settings() -> None:
    dice = random.Random(7)
    image = ClusterImage()

    def configs() -> Mapping[str, str]:
        return {f"k{n}": "\u00e9" * dice.randrange(9) for n in range(dice.randrange(3))}

    for _ in range(300):
        names = [f"t{dice.randrange(5)}" for _ in range(2)]
        match dice.randrange(4):
            case 0:
                image = image.with_topics(
                    new_topic_image(name, new_uuid(), [(1,)], configs()) for name in names
                )
            case 1:
                image = image.without_topics(names)
            case 2:
                resource = ConfigResource(ConfigKind.BROKER, str(dice.randrange(3)))
                image = image.with_configs({resource: configs()})
            case _:
                image = image.with_partitions(image.partitions()).at_version(image.version + 1)
        assert image.settings_bytes == counted(image)


def test_topics_are_not_counted_for_each_event() -> None:
    class Uncountable(dict[str, TopicImage]):
        def values(self) -> NoReturn:
            raise AssertionError("all topics were looked at")

    crowded = replace(image(), topics=Uncountable(image().topics))
    assert SettingsRoom(crowded, bytes_max=20).take({}, TEN) is not None


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, "__transaction_state"])
def test_the_brokers_own_topics_can_be_made_without_room(broker: OneBroker, name: str) -> None:
    full = partial(SettingsRoom, bytes_max=0)
    with patch("kbroker.metadata.controller.topic_changes.SettingsRoom", full):
        made = broker.create(
            NewTopic(name, 1, 1, configs={"cleanup.policy": "compact"}),
            NewTopic("t", 1, 1, configs={"cleanup.policy": "compact"}),
        )
    assert [it.error for it in made] == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
