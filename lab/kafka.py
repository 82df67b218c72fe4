"""Apache Kafka on loopback: how a single node is configured, formatted and started.

A node is broker and controller in one JVM. The settings are the defaults but for those that a
single node needs: replication factors of 1 and no rebalance delay.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SIGTERM_STATUS_OF_A_JVM: Final = 143
CLUSTER_ID: Final = "a2Jyb2tlci1wZXJmLTAwMQ"
FORMAT_TIMEOUT_S: Final = 60
_MAIN: Final = "kafka.Kafka"
_FORMAT: Final = ("kafka.tools.StorageTool", "format", "--ignore-formatted")


def single_node(
    data_dir: Path, port: int, controller_port: int, host: str = "127.0.0.1"
) -> dict[str, str]:
    """The server.properties of one node."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def write(path: Path, settings: Mapping[str, object]) -> None:
    """A file of settings."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")


def format_storage(java: Sequence[str], properties: Path, *arguments: str) -> None:
    """Format the data directory of a node unless it is formatted. `java`: the program, its flags
    and class path. CalledProcessError has what the tool printed; TimeoutExpired."""
    subprocess.run(
        [*java, *_FORMAT, "-t", CLUSTER_ID, "-c", str(properties), *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
    )


def command(java: Sequence[str], properties: Path) -> list[str]:
    """The command of a node; `java` as for `format_storage`."""
    return [*java, _MAIN, str(properties)]
