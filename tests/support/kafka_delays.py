"""How long Apache Kafka's own quotas have a client wait: Delays.java in a JVM of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from tests.clients.agents import programs
from tests.support import kafka_classes

TIMEOUT_S = 300


def answers(commands: Iterable[str]) -> list[str]:
    """To the commands that have one, in their order; see Delays.java."""
    ran = subprocess.run(
        kafka_classes.command("Delays", classes=programs.build("java"), log="info"),
        input="\n".join(commands).encode(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()[-2_000:]
    return [line for line in ran.stdout.decode().splitlines() if line[0].isdigit() or " " in line]
