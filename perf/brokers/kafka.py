"""Apache Kafka 4.3.0 on this machine: the yardstick.

Its jars come from Maven once (lab/jars.py); the broker is one node in KRaft mode, controller and
broker in one process, with the heap and the flags that its own start script gives a JVM (heap 1 GB,
G1). Settings are the defaults but for those of a single node, and two that do not touch the
request path: a session timeout long enough to be held still between blocks, and segments of deleted
topics going at once so that a long run does not fill the disk.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import MappingProxyType

from lab import kafka
from lab.jars import KAFKA, KAFKA_VERSION
from lab.ports import free_port
from perf.brokers.base import COLLECTOR, COMPILER, HERE, Broker, BrokerError, Place

HEAP = "1G"
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
        lines KEY=VALUE over the settings of server.properties."""
        super().__init__(directory, port, place=place)
        self._overrides = overrides
        self._holdable = holdable
        self.controller_port = free_port()
        self._heap = heap
        self._jvm_flags: tuple[str, ...] = JVM_FLAGS
        self.format_arguments: tuple[str, ...] = ()  # beside those of a single node

    def override(self, *lines: str) -> None:
        """Further lines KEY=VALUE; before it is started."""
        self._overrides += lines

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def prepare(self) -> None:
        data = self.directory / "data"
        settings = kafka.single_node(data, self.port, self.controller_port, self.host)
        settings["log.segment.delete.delay.ms"] = "500"
        if self._holdable:
            settings["broker.session.timeout.ms"] = str(HELD_STILL_MS)
        settings.update(line.split("=", 1) for line in self._overrides)  # type: ignore[misc]
        kafka.write(self._properties, settings)
        if (data / "meta.properties").exists():
            return
        try:
            java = ["java", "-cp", KAFKA.fetch()]
            kafka.format_storage(java, self._properties, *self.format_arguments)
        except subprocess.CalledProcessError as error:
            raise BrokerError(f"formatting failed: {error.stdout}{error.stderr}") from None

    def command(self) -> list[str]:
        heap = (f"-Xms{self._heap}", f"-Xmx{self._heap}")
        java = ["java", *heap, *self._jvm_flags, "-cp", KAFKA.fetch()]
        return kafka.command(java, self._properties)

    def version(self) -> str:
        return KAFKA_VERSION

    def held_bytes(self) -> int | None:
        """What lives in the heap, after a collection of all of it. None without the JDK's jcmd.

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
