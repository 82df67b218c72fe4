"""Apache Kafka's own jars: its command-line tools as clients, its broker as the reference.

`perf` fetches them by Maven, once, into the cache directory outside the work tree (KBROKER_CACHE,
by default ~/.cache/kbroker), and the tests use the same ones. Tests only read the cache
(`class_path`) and skip where it is empty; `python -m tests.support.setup`, which `make test` runs,
fills it.
"""

from __future__ import annotations

from pathlib import Path

from perf.brokers import kafka
from perf.brokers.base import cache_directory
from tests.support import requirements
from tests.support.maven import Jars

KAFKA_VERSION = kafka.VERSION
STREAMS = Jars(
    f"kafka-{KAFKA_VERSION}/streams",
    (f"org.apache.kafka:kafka-streams-examples:{KAFKA_VERSION}",
     f"org.slf4j:slf4j-simple:{kafka.SLF4J}"),
)  # fmt: skip


def jar_dir() -> Path:
    return cache_directory() / f"kafka-{KAFKA_VERSION}" / "libs"


def present() -> bool:
    return any(jar_dir().glob("kafka-tools-*.jar"))


def class_path() -> str:
    """For `java -cp`; skips the calling test where the jars are not in the cache."""
    if not present():
        requirements.skip_missing(
            f"Apache Kafka {KAFKA_VERSION}'s jars", f"`make test` fetches them into {jar_dir()}"
        )
    return f"{jar_dir()}/*"


def ensure() -> None:
    """Fetch the jars unless they are there; BrokerError says what is missing."""
    kafka.jars()
