"""What Apache Kafka's coordinator of groups decides: GroupRules.java in a JVM of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from tests.clients.agents import programs
from tests.support import kafka_classes

TIMEOUT_S = 580


def answers(commands: Iterable[str]) -> list[str]:
    """To the commands that have one, in their order; see GroupRules.java."""
    classes = programs.build("java")
    ran = subprocess.run(
        kafka_classes.command("GroupRules", classes=classes, heap="-Xmx512m", log="info"),
        input="\n".join(commands).encode(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()[-2_000:]
    return ran.stdout.decode().splitlines()
