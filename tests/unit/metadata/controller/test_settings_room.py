"""The bytes of all settings together have a bound."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.image import ClusterImage, ConfigKind, ConfigResource, new_uuid

TEN = {"12345": "67890"}
TWENTY = {"12345": "67890abcdefghij"}


def image() -> ClusterImage:
    topic = new_topic_image("t", new_uuid(), [(1,)], TEN)
    configs = {ConfigResource(ConfigKind.BROKER, "1"): MappingProxyType(TEN)}
    return replace(ClusterImage().with_topics([topic]), configs=MappingProxyType(configs))


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


def test_what_was_refused_takes_no_room() -> None:
    room = SettingsRoom(ClusterImage(), bytes_max=15)
    assert room.take({}, TWENTY) is not None
    assert room.take({}, TEN) is None
    assert room.take(TEN, TWENTY) is not None
