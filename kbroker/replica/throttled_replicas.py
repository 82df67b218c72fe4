"""Which replicas are copied no faster than a rate (KIP-73), as topics and brokers are set.

`follower.replication.throttled.replicas` and `leader.replication.throttled.replicas` of a topic
name them, `partition:broker` with commas or `*` for all; the rates are their brokers'.
`throttle.py` keeps the rate of the follower that copies, `engine/worker/_leader_throttle.pyx` that
of the leader.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.metadata.image import TopicImage

RATE: Final = "follower.replication.throttled.rate"
LEADER_RATE: Final = "leader.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
REPLICAS: Final = "follower.replication.throttled.replicas"
_EVERY_REPLICA: Final = "*"


def is_throttled(topic: TopicImage | None, partition: int, node_id: int) -> bool:
    """Whether the topic's settings hold back this replica, which does so out of sync only."""
    if topic is None or partition >= len(topic.partitions):
        return False
    if node_id in topic.partitions[partition].isr:
        return False
    return names_replica(topic.configs.get(REPLICAS, ""), partition, node_id)


def names_replica(replicas: str, partition: int, node_id: int) -> bool:
    """Whether such a setting of a topic names this one."""
    if not replicas:
        return False
    named = _named(replicas)
    return _EVERY_REPLICA in named or f"{partition}:{node_id}" in named


@functools.lru_cache(maxsize=64)
def _named(replicas: str) -> frozenset[str]:
    return frozenset(each.strip() for each in replicas.split(","))
