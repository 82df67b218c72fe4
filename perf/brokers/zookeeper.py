"""Apache ZooKeeper 3.9.4 on loopback: where the brokers of a cluster meet.

One server with a small heap, its jars from Maven once. It answers 1-2 s after its start.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

from perf.brokers import jars
from perf.brokers.base import HERE, Broker, Place, cache_directory

VERSION: Final = "3.9.4"
COORDINATES: Final = (
    f"org.apache.zookeeper:zookeeper:{VERSION}",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)
NAME: Final = f"zookeeper-{VERSION}"  # its directory in the cache
HEAP: Final = "256m"
TICK_MS: Final = 500
_ANSWER_S: Final = 5.0
_LOGBACK: Final = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c{1}: %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def fetch_jars() -> None:
    """Its jars into the cache, at the first call."""
    home = cache_directory() / NAME
    if not any(home.glob("*.jar")):
        jars.fetch(f"ZooKeeper {VERSION}", home, COORDINATES)


class ZooKeeper(Broker):
    """One server; `directory` keeps its data from one start to the next."""

    name = "zookeeper"

    def __init__(
        self, directory: Path, port: int = 0, *, session_ms_max: int = 0, place: Place = HERE
    ) -> None:
        """`session_ms_max`: the longest session that a broker is given; 0: 20 ticks, 10 s."""
        super().__init__(directory, port, place=place)
        self._session_ms_max = session_ms_max

    def prepare(self) -> None:
        settings: dict[str, object] = {
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": TICK_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        if self._session_ms_max:
            settings["maxSessionTimeout"] = self._session_ms_max
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.directory / "zoo.cfg").write_text(text, encoding="utf-8")
        (self.directory / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
        fetch_jars()

    def command(self) -> list[str]:
        return [
            "java", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlogback.configurationFile={self.directory / 'logback.xml'}",
            "-cp", f"{cache_directory() / NAME}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.directory / "zoo.cfg"),
        ]  # fmt: skip

    def answers(self) -> bool:
        return b"Mode: " in self._say(b"srvr")

    def version(self) -> str:
        return VERSION

    def _say(self, word: bytes) -> bytes:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.host, self.port), _ANSWER_S) as connection,
        ):
            connection.sendall(word)
            with connection.makefile("rb") as answer:
                return answer.read()
        return b""
