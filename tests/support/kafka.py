"""Apache Kafka itself, one node on loopback: the reference that the tests are checked against.

    python -m tests.support.kafka [--port P] [--data-dir D]     runs one until interrupted
    KBROKER_TEST_REFERENCE=kafka pytest tests/clients           runs the client tests against one

KafkaBroker has kbroker.testing.Broker's face (bootstrap, data_dir, kill9, restart, ...). It runs
broker and controller in one JVM with the settings that make a single node usable: replication
factors 1, no rebalance delay.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
from pathlib import Path

from kbroker.testing.process import ServerProcess
from lab import kafka
from lab.jars import KAFKA
from lab.ports import free_port
from tests.support import jars, kafka_classes, kafka_storage, requirements

_UNSTABLE = "unstable.feature.versions.enable"  # with it the tool sets other levels


class KafkaBroker(ServerProcess):
    name = "apache-kafka"
    start_timeout_s = 60.0
    ready_poll_s = 0.03
    clean_exit_statuses = (0, kafka.SIGTERM_STATUS_OF_A_JVM)
    jars = KAFKA
    started_line = "Kafka Server started"
    heap = "512m"
    java_options: tuple[str, ...] | None = None  # instead of the ones that make it start soon
    formats_by_tool = False  # always

    def command(self) -> list[str]:
        flags = self.java_options or kafka_classes.java_options(self.jars)
        heap = (f"-Xmx{self.heap}", f"-Xms{self.heap}")
        java = [requirements.java(), *flags, *heap, "-cp", requirements.jars(self.jars)]
        return kafka.command(java, self._properties_path)

    def prepare(self) -> None:
        self._log_start = len(self.log_text())
        if self._properties_path.exists():
            return
        if self.port == 0:
            self.port = free_port()
        settings = self.settings()
        kafka.write(self._properties_path, settings)
        if not self._formatted(settings):
            java = [requirements.java(), *kafka_classes.java_options(), "-cp", jars.class_path()]
            kafka.format_storage(java, self._properties_path, *self.format_arguments())

    def _formatted(self, settings: dict[str, str]) -> bool:
        """Whether its storage could be made without Kafka's own tool."""
        usual = not self.format_arguments() and settings["log.dirs"] == str(self.data_dir)
        wanted = usual and not self.formats_by_tool and _UNSTABLE not in settings
        return wanted and kafka_storage.write(self.data_dir, settings["node.id"], kafka.CLUSTER_ID)

    def format_arguments(self) -> tuple[str, ...]:
        """What a subclass wants in the storage from the beginning."""
        return ()

    def poll_ready(self) -> str | None:
        if self.started_line not in self.log_text()[self._log_start :]:
            return None
        return f"127.0.0.1:{self.port}"

    @property
    def _properties_path(self) -> Path:
        return self.scratch_dir / "server.properties"

    def settings(self) -> dict[str, str]:
        """Its server.properties; `port` is known."""
        return {
            **kafka.single_node(self.data_dir, self.port, free_port()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **self.overrides,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Apache Kafka on loopback until interrupted.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the JVM would go on running
    with KafkaBroker(data_dir=arguments.data_dir, port=arguments.port) as broker:
        print(f"bootstrap {broker.bootstrap} data {broker.data_dir} pid {broker.pid}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
