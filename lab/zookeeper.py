"""Apache ZooKeeper on loopback: how a server is configured and asked, and one to run.

One server has a small heap and answers 1-2 s after its start. Ticks are short, so that a session
may be as short as a second.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbroker.testing.process import ServerProcess
from lab.jars import ZOOKEEPER
from lab.kafka import SIGTERM_STATUS_OF_A_JVM
from lab.ports import free_port

HOST: Final = "127.0.0.1"
TICK_MS: Final = 500
ANSWER_TIMEOUT_S: Final = 5.0
_LOGBACK: Final = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c{1}: %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def configure(
    home: Path, data_dir: Path, port: int, settings: Mapping[str, object], host: str = HOST
) -> None:
    """Write the files that `command` starts a server with; `settings` go over the defaults."""
    every = {
        "dataDir": data_dir,
        "clientPort": port,
        "clientPortAddress": host,
        "tickTime": TICK_MS,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
        **settings,
    }
    text = "".join(f"{key}={value}\n" for key, value in every.items())
    (home / "zoo.cfg").write_text(text, encoding="utf-8")
    (home / "logback.xml").write_text(_LOGBACK, encoding="utf-8")


def command(home: Path, heap: str, *flags: str, java: str = "java") -> list[str]:
    """Of a server that was configured in `home`. Fetches the jars at the first call; OSError."""
    return [
        java, f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *flags,
        f"-Dlogback.configurationFile={home / 'logback.xml'}", "-cp", ZOOKEEPER.fetch(),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg"),
    ]  # fmt: skip


def mode(port: int, host: str = HOST) -> str:
    """standalone, leader or follower; empty while the server serves no client."""
    answer = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), ANSWER_TIMEOUT_S) as connection,
    ):
        connection.sendall(b"srvr")
        with connection.makefile("rb") as lines:
            answer = lines.read()
    said = answer.decode(errors="replace").splitlines()
    return next((line[6:] for line in said if line.startswith("Mode: ")), "")


class ZooKeeper(ServerProcess):
    """One server in a process of its own."""

    name = "zookeeper"
    start_timeout_s = 60.0
    ready_poll_s = 0.02
    clean_exit_statuses = (0, SIGTERM_STATUS_OF_A_JVM)
    heap = "256m"

    def __init__(self, data_dir: Path | None = None, port: int = 0) -> None:
        super().__init__(data_dir=data_dir, port=port or free_port())

    @property
    def connect(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        configure(self.scratch_dir, self.data_dir, self.port, self.settings())

    def settings(self) -> dict[str, str]:
        """Its own, over the defaults."""
        return {}

    def command(self) -> list[str]:
        return command(self.scratch_dir, self.heap)

    def poll_ready(self) -> str | None:
        return self.connect if self.mode() else None

    def mode(self) -> str:
        """standalone, leader or follower; empty while it serves no client."""
        return mode(self.port)
