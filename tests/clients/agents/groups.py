"""What the cluster says about groups, asked through librdkafka's admin client.

Each question has a client of its own: one that lives through a restart of the broker sometimes ends
the process (librdkafka 2.16: `rd_kafka_enq_once_del_source_return: eonce->refcnt > 0`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin

from tests.clients.adapters import TIMEOUT_S
from tests.clients.agents.driver import Partition


class State(NamedTuple):
    name: str  # "STABLE", "EMPTY", ...
    protocol: str  # the assignor that all members agreed on
    members: int


class Groups:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _client(self) -> Any:
        return confluent_kafka.admin.AdminClient({"bootstrap.servers": self._bootstrap})

    def committed(self, group: str) -> dict[Partition, int]:
        """Every offset that the group has committed."""
        wanted = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        client = self._client()
        found: Any = client.list_consumer_group_offsets(wanted)[group].result(TIMEOUT_S)
        return {
            (each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.offset >= 0
        }

    def state(self, group: str) -> State:
        client = self._client()
        found: Any = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return State(found.state.name, found.partition_assignor, len(found.members))
