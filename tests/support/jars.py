"""Apache Kafka's own jars: its command-line tools as clients, its broker as the reference.

Tests only read the cache (`class_path`) and skip where it is empty; `make test` fills it
(tests/support/setup.py).
"""

from __future__ import annotations

from lab.jars import KAFKA, KAFKA_VERSION, SLF4J, Jars
from tests.support import requirements

# The last release with ZooKeeper, for its tools.
OLD_KAFKA = Jars("kafka-3.9.1/libs", ("org.apache.kafka:kafka_2.13:3.9.1", SLF4J))
STREAMS = Jars(
    f"kafka-{KAFKA_VERSION}/streams",
    (f"org.apache.kafka:kafka-streams-examples:{KAFKA_VERSION}", SLF4J),
)


def class_path() -> str:
    """For `java -cp`; skips the calling test where the jars are not in the cache."""
    return requirements.jars(KAFKA)
