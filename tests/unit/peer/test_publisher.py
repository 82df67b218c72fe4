"""A topic of one's own: made with its settings, found the next time, and let go of when refused."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import NewTopic
from kbroker.peer.publisher import Publisher
from kbroker.protocol.record_batch import Record
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import FakeBroker

OWN = NewTopic("own", configs={"retention.ms": "1000"})


def test_the_topic_is_made_once_with_its_settings() -> None:
    with FakeBroker() as broker:
        for made in (True, False):
            with Publisher(broker.bootstrap, OWN, client_id="p") as publisher:
                assert publisher.made is made
                assert publisher.send([Record(b"k", b"v")] * 2) == 2
        asked = broker.seen(ApiKey.CREATE_TOPICS)[0].topics[0]
        assert [(one.name, one.value) for one in asked.configs] == [("retention.ms", "1000")]
        assert len(broker.records("own")) == 4
        assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 2


def test_a_topic_that_is_refused_is_not_made_without_its_settings() -> None:
    """As the producer would have it made, by asking for its metadata."""
    with FakeBroker() as broker:
        broker.script(ApiKey.CREATE_TOPICS, ErrorCode.POLICY_VIOLATION)
        with pytest.raises(KafkaError, match="own: ") as refused:
            Publisher(broker.bootstrap, OWN, client_id="p")
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert not broker.seen(ApiKey.INIT_PRODUCER_ID)
