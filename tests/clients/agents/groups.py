"""What the cluster says about groups, asked through librdkafka's admin client.

Each question has a client of its own: one that lives through a restart of the broker sometimes ends
the process (librdkafka 2.16: `rd_kafka_enq_once_del_source_return: eonce->refcnt > 0`).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin

from tests.clients.adapters import TIMEOUT_S
from tests.clients.agents.driver import POLL_S, Partition

LOADING = confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS


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
        """Every offset that the group has committed; waits for a coordinator that still loads them,
        which librdkafka's admin client leaves to its caller."""
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = self._offsets(group)
                break
            except confluent_kafka.KafkaException as error:
                loading = error.args[0].code() == LOADING
                if not loading or time.monotonic() > give_up:
                    raise
            time.sleep(POLL_S)
        return {
            (each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.offset >= 0
        }

    def _offsets(self, group: str) -> Any:
        wanted = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        client = self._client()  # lives until its answer is here
        return client.list_consumer_group_offsets(wanted)[group].result(TIMEOUT_S)

    def state(self, group: str) -> State:
        client = self._client()
        found: Any = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return State(found.state.name, found.partition_assignor, len(found.members))
