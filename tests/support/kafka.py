"""Apache Kafka itself, one node on loopback: the reference that the tests are checked against.

    python -m tests.support.kafka [--port P] [--data-dir D]     runs one until interrupted
    KBROKER_TEST_REFERENCE=kafka pytest tests/clients           runs the client tests against one

KafkaBroker has kbroker.testing.Broker's face (bootstrap, data_dir, kill9, restart, ...). It runs
broker and controller in one JVM with the settings that make a single node usable: replication
factors 1, no rebalance delay.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import signal
import subprocess
import uuid
from pathlib import Path

from kbroker.testing.process import ServerProcess
from perf.ports import free_port
from tests.support import jars, kafka_classes, requirements

FORMAT_TIMEOUT_S = 60
SIGTERM_STATUS_OF_A_JVM = 143


class KafkaBroker(ServerProcess):
    name = "apache-kafka"
    start_timeout_s = 60.0
    ready_poll_s = 0.03
    clean_exit_statuses = (0, SIGTERM_STATUS_OF_A_JVM)
    heap = "512m"
    java_options: tuple[str, ...] | None = None  # instead of the ones that make it start soon

    def command(self) -> list[str]:
        return [
            requirements.java(), *(self.java_options or kafka_classes.java_options()),
            f"-Xmx{self.heap}", f"-Xms{self.heap}",
            "-cp", jars.class_path(), "kafka.Kafka", str(self._properties_path),
        ]  # fmt: skip

    def prepare(self) -> None:
        self._log_start = len(self.log_text())
        if self._properties_path.exists():
            return
        if self.port == 0:
            self.port = free_port()
        self._properties_path.write_text(self._properties(), encoding="utf-8")
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        subprocess.run(
            [
                requirements.java(), *kafka_classes.java_options(), "-cp", jars.class_path(),
                "kafka.tools.StorageTool", "format", "--ignore-formatted",
                "-t", cluster_id.replace("-", "x"), "-c", str(self._properties_path),
                *self.format_arguments(),
            ],
            check=True,
            capture_output=True,
            timeout=FORMAT_TIMEOUT_S,
        )  # fmt: skip

    def format_arguments(self) -> tuple[str, ...]:
        """What a subclass wants in the storage from the beginning."""
        return ()

    def poll_ready(self) -> str | None:
        if "Kafka Server started" not in self.log_text()[self._log_start :]:
            return None
        return f"127.0.0.1:{self.port}"

    @property
    def _properties_path(self) -> Path:
        return self.scratch_dir / "server.properties"

    def _properties(self) -> str:
        return "".join(f"{key}={value}\n" for key, value in self.settings().items())

    def settings(self) -> dict[str, str]:
        """Its server.properties; `port` is known."""
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Apache Kafka on loopback until interrupted.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the JVM would be left behind
    with KafkaBroker(data_dir=arguments.data_dir, port=arguments.port) as broker:
        print(f"bootstrap {broker.bootstrap} data {broker.data_dir} pid {broker.pid}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
