"""Lines of --export and --from-file: `kbroker kafka-consumer-groups` beside the original.

As test_kafka_tools.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker.testing import Broker
from tests.clients.agents.pair import Pair
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.java]

TOPICS = {"orders": 1, "a-topic-of-more-than-24-characters": 1}
NAMES = ['a "b", c', "a-group-of-more-than-24-characters"]


def test_exported_offsets_are_csv(tools: Tools, tmp_path: Path) -> None:
    with Broker(topics=TOPICS) as broker:
        for group in NAMES:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            offsets = [TopicPartition(topic, 0, 0) for topic in TOPICS]
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
        names = ("consumer.group.ConsumerGroupCommand", "kafka-consumer-groups")
        pair = Pair(tools, broker.bootstrap, *names, within=True)
        file = tmp_path / "exported.csv"
        for which in (NAMES[:1], NAMES):
            chosen = [word for name in which for word in ("--group", name)]
            reset = ["--reset-offsets", "--dry-run", *chosen]
            file.write_text(pair.both(*reset, "--all-topics", "--to-current", "--export").output)
            read = pair.both(*reset, "--from-file", str(file)).output
            assert read.count("orders") == len(which) and "No reset plan" not in read
