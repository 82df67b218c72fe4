"""Many partitions on a cluster: topics of at most a hundred, replicas as they are asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from perf import batch, requests
from perf.cells import PLAIN_PRODUCE, CellError, run_load
from perf.client import Client, ClientError
from perf.cluster.brokers import until
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.tool import TOPIC_ALREADY_EXISTS

PARTITIONS_MAX: Final = 100  # of a topic
RECORD_BYTES: Final = 100


def split(partitions: int, topics_min: int = 1) -> list[int]:
    """So many partitions as the sizes of topics, which differ by one at most."""
    topics = min(max(topics_min, -(-partitions // PARTITIONS_MAX)), partitions)
    each, more = divmod(partitions, topics)
    return [each + (number < more) for number in range(topics)]


def create_many(
    client: Client, stem: str, partitions: int, replicas: Sequence[Sequence[int]]
) -> list[Topic]:
    """Topics that have so many partitions together; the first has the first `replicas` and so on,
    round and round. It does not wait until they are led. Without a controller it asks again."""
    made = []
    for number, size in enumerate(split(partitions, len(replicas))):
        name = f"{stem}-{number}"
        there = partial(_is_made, client, name, size, replicas[number % len(replicas)])
        until(f"topic {name} is made", there)
        made.append(Topic(name, bytes(16), size))
    return made


def _is_made(client: Client, name: str, size: int, replicas: Sequence[int]) -> bool:
    """Makes it; one that is there was made by an attempt whose answer was another."""
    try:
        client.create_topics([name], size, replicas=replicas)
    except ClientError as error:
        if error.code != TOPIC_ALREADY_EXISTS:
            raise
    return True


def write_one_each(client: Client, topics: Sequence[Topic], *, acks: int = 1) -> None:
    """A record into every partition, at its leader."""
    body = batch.of_records(RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
    for topic in topics:
        everywhere = [(Partition(index), body) for index in range(topic.partitions)]
        one = requests.produce(PLAIN_PRODUCE, topic, everywhere, acks=acks)
        stream = Stream("produce", PLAIN_PRODUCE, (one,), acks=acks, send_limit=1)
        counters = run_load(Run(client.host, client.port, (stream,), warm_s=0, window_s=0))
        if counters["streams"][0]["errors"]:
            raise CellError(f"{topic.name}: error code {counters['streams'][0]['first_error']}")
