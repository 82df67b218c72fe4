"""The change of a topic's setting: what is applied is what the dry run compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kbroker.console.asked import Asked, Refused
from kbroker.console.writes import configure_topic
from kbroker.errors import ErrorCode
from kbroker.peer.config_messages import ConfigValue
from kbroker.peer.messages import TopicResult
from tests.unit.console.fake_cluster import FakeClient, asked_of, cluster_of, forms, notices

TOPIC_SOURCE = 1


class Topic(FakeClient):
    """With one setting, which it changes."""

    def __init__(self) -> None:
        super().__init__(cluster_of((1,)))
        self.value = "1000"

    def topic_configs(self, name: str) -> list[ConfigValue]:
        return [ConfigValue("retention.ms", self.value, False, TOPIC_SOURCE, False)]

    def alter_configs(
        self, resources: Any, change: Mapping[str, str], unset: Any, *, validate_only: bool
    ) -> list[TopicResult]:
        if not validate_only:
            self.value = change["retention.ms"]
        return [TopicResult("made", ErrorCode.NONE, None)]


def sent(client: Topic, values: Mapping[str, str]) -> Asked:
    asked = asked_of(client, path={"topic": "made"}, **values)
    return asked._replace(may_write=True, sent=True)


def planned(client: Topic) -> dict[str, str]:
    page = configure_topic.make(sent(client, {"key": "retention.ms", "value": "2000"}))
    return {field.name: field.value for field in forms(page)["apply"].fields}


def test_a_setting_is_changed() -> None:
    client = Topic()
    page = configure_topic.make(sent(client, planned(client)))
    assert client.value == "2000" and notices(page) == ["the setting is changed"]


def test_a_setting_that_was_changed_since_the_dry_run_is_left_as_it_is() -> None:
    client = Topic()
    values = planned(client)
    client.value = "3000"
    for sending in (values, values | {"before": ""}):
        with pytest.raises(Refused) as raised:
            configure_topic.make(sent(client, sending))
        assert raised.value.status == 409 and "has changed" in raised.value.what
    assert client.value == "3000"
