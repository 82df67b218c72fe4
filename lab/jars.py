"""Jars of the servers that run beside kbroker: fetched by Maven once, kept in the cache directory.

The cache directory is outside the work tree: KBROKER_CACHE, by default ~/.cache/kbroker.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lab import maven

KAFKA_VERSION: Final = "4.3.0"
ZOOKEEPER_VERSION: Final = "3.9.4"
SLF4J: Final = "org.slf4j:slf4j-simple:1.7.36"


class JarsMissing(OSError):
    """Jars are not in the cache and could not be fetched; the message says why."""


def cache_directory() -> Path:
    """Where what is fetched once is kept."""
    chosen = os.environ.get("KBROKER_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "kbroker"


class Jars(NamedTuple):
    """A set of jars; `name` is its directory in the cache, coordinates group:artifact:version."""

    name: str
    wanted: Sequence[str]

    @property
    def directory(self) -> Path:
        return cache_directory() / self.name

    @property
    def class_path(self) -> str:
        """For `java -cp`, whether the jars are there or not."""
        return f"{self.directory}/*"

    def present(self) -> bool:
        """Whether every jar that was asked for by name is there."""
        names = ("{1}-{2}.jar".format(*each.split(":")) for each in self.wanted)
        return all((self.directory / name).exists() for name in names)

    def fetch(self) -> str:
        """The class path, fetched at the first call. Raises JarsMissing."""
        if not self.present():
            try:
                maven.fetch(self.directory, self.wanted)
            except (OSError, subprocess.SubprocessError) as error:
                raise JarsMissing(f"the jars of {self.name} are missing: {error}") from None
        return self.class_path


KAFKA: Final = Jars(
    f"kafka-{KAFKA_VERSION}/libs",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        SLF4J,
    ),
)
ZOOKEEPER: Final = Jars(
    f"zookeeper-{ZOOKEEPER_VERSION}",
    (
        f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}",
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "org.xerial.snappy:snappy-java:1.1.10.5",
    ),
)
