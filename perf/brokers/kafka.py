"""Apache Kafka 4.3.0 on this machine: the yardstick.

Its jars come from Maven once, by a pom that is written into the cache directory; the broker is one
node in KRaft mode, controller and broker in one process, with the heap and the flags that its own
start script gives a JVM (heap 1 GB, G1). Settings are the defaults but for what a single node
needs, and two that do not touch the request path: a session timeout long enough to be held still
between blocks, and segments of deleted topics going at once so that a long run does not fill the
disk.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import MappingProxyType

from perf.brokers.base import (
    COLLECTOR,
    COMPILER,
    HERE,
    Broker,
    BrokerError,
    Place,
    cache_directory,
)
from perf.brokers.jars import fetch
from perf.ports import free_port

VERSION = "4.3.0"
SCALA = "2.13"
SLF4J = "1.7.36"
HEAP = "1G"
WANTED = (
    f"org.apache.kafka:kafka_{SCALA}:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    f"org.slf4j:slf4j-simple:{SLF4J}",
)
CLUSTER_ID = "a2Jyb2tlci1wZXJmLTAwMQ"
JCMD_TIMEOUT_S = 60
HELD_STILL_MS = 24 * 3_600_000

JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


def jars() -> Path:
    """The directory with Apache Kafka's jars, fetched by Maven at the first call."""
    home = cache_directory() / f"kafka-{VERSION}"
    libs = home / "libs"
    if any(libs.glob(f"kafka_{SCALA}-{VERSION}.jar")) and any(libs.glob("kafka-tools-*.jar")):
        return libs
    fetch(f"Apache Kafka {VERSION}", libs, WANTED)
    return libs


class KafkaBroker(Broker):
    """One node of Apache Kafka."""

    name = "kafka"
    # A JVM's, as the kernel knows them: the first 15 characters.
    runtime_threads = MappingProxyType(
        {COMPILER: ("C1 ", "C2 "), COLLECTOR: ("GC Thread", "G1 ", "VM Thread")}
    )

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        heap: str = HEAP,
        holdable: bool = True,
        overrides: tuple[str, ...] = (),
        place: Place = HERE,
    ) -> None:
        """`holdable`: may be stopped in its tracks for minutes without being fenced. `overrides`:
        lines KEY=VALUE behind the others of server.properties, which the last one wins."""
        super().__init__(directory, port, place=place)
        self._overrides = overrides
        self._holdable = holdable
        self._controller_port = free_port()
        self._heap = heap
        self._jvm_flags: tuple[str, ...] = JVM_FLAGS

    def _java(self, *arguments: str) -> list[str]:
        return ["java", *arguments[:-1], "-cp", f"{jars()}/*", *arguments[-1].split()]

    def prepare(self) -> None:
        config = self.directory / "server.properties"
        data = self.directory / "data"
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://{self.host}:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.segment.delete.delay.ms": "500",
        }
        if self._holdable:
            settings["broker.session.timeout.ms"] = str(HELD_STILL_MS)
        lines = [*(f"{key}={value}" for key, value in settings.items()), *self._overrides]
        config.write_text("".join(f"{line}\n" for line in lines))
        if (data / "meta.properties").exists():
            return
        formatted = subprocess.run(
            self._java(f"kafka.tools.StorageTool format -t {CLUSTER_ID} -c {config}"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        if formatted.returncode:
            raise BrokerError(f"formatting failed: {formatted.stdout}{formatted.stderr}")

    def command(self) -> list[str]:
        return self._java(
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            *self._jvm_flags,
            f"kafka.Kafka {self.directory / 'server.properties'}",
        )

    def version(self) -> str:
        return VERSION

    def held_bytes(self) -> int | None:
        """What lives in the heap, behind a collection of all of it. None without the JDK's jcmd.

        Resident memory would show what was ever touched: the heap is never given back.
        """
        jcmd = shutil.which("jcmd")
        if jcmd is None:
            return None
        asked = subprocess.run(
            [jcmd, str(self.pid), "GC.class_histogram"],  # of live objects: it collects first
            capture_output=True,
            text=True,
            timeout=JCMD_TIMEOUT_S,
        )
        return _live_bytes(asked.stdout)


def _live_bytes(histogram: str) -> int | None:
    """The sum in the last line: "Total        100864        5898216"."""
    words = histogram.split("\n")[-2].split() if histogram.count("\n") > 1 else []
    if len(words) != 3 or words[0] != "Total" or not words[2].isdecimal():
        return None
    return int(words[2])
