"""Apache Kafka 3.9 on loopback, with its metadata in ZooKeeper, in the tree of a test's choice.

Broker 1, which is the controller too. It has the two listeners of the kbroker that it takes turns
with; `overrides` name them, and what both agree in.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import jars
from tests.support.kafka import KafkaBroker


class OldKafkaBroker(KafkaBroker):
    name = "apache-kafka-3.9"
    jars = jars.OLD_KAFKA
    started_line = "[KafkaServer id=1] started"

    def settings(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            **self.overrides,
        }

    def _formatted(self, settings: Mapping[str, str]) -> bool:
        return True  # the broker writes meta.properties itself
