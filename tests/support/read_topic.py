"""A topic from its first record to its last, by librdkafka: an oracle for readers of topics."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

WAIT_S: Final = 30.0
# With `enable.partition.eof`: the end is known by a fetch that finds nothing, which would wait.
EOF_AT_ONCE: Final = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}


class Found(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes


def read_topic(bootstrap: str, topic: str) -> list[Found]:
    """By partition and offset, up to the ends that the topic has at the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle",
                         "enable.auto.commit": False})  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions]
        bounds = [consumer.get_watermark_offsets(place, WAIT_S) for place in places]
        left = sum(high - low for low, high in bounds)
        consumer.assign(places)
        found: list[Found] = []
        give_up = time.monotonic() + WAIT_S
        while len(found) < left:
            for message in consumer.consume(1000, 0.2):
                if message.error():
                    raise AssertionError(f"{topic}: {message.error()}")
                found.append(Found(message.partition(), message.offset(), message.key(),
                                   message.value() or b""))  # fmt: skip
            if time.monotonic() > give_up:
                raise AssertionError(f"{topic}: {len(found)} of {left} records in {WAIT_S} s")
        return sorted(found)
    finally:
        consumer.close()
