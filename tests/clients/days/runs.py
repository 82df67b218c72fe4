"""A client's day on one broker, as JSON data; the topics of earlier days are deleted first."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.clients import adapters
from tests.clients.adapters.confluent import eventually
from tests.clients.days import script
from tests.clients.days.admins import ADMINS
from tests.support import kafka_classes

JAVA = "java"
CLIENTS = (*(client.name for client in adapters.CLIENTS), JAVA)
JAVA_TIMEOUT_S = 120
PROGRAM = Path(__file__).with_name("Day.java")

Day = list[tuple[str, Any]]


def recorded(client: str) -> Path:
    return Path(__file__).parent / "apache_kafka_4_3_0" / f"{client}.json"


def clear(bootstrap: str) -> None:
    admin = adapters.Admin(bootstrap)
    left = [topic for topic in admin.topics() if not topic.startswith("__")]
    if left:
        admin.delete(*left)
        eventually(lambda: not admin.topics().keys() & set(left))


def day(client: str, bootstrap: str) -> Day:
    steps = _java(bootstrap) if client == JAVA else _python(client, bootstrap)
    return [(str(step), outcome) for step, outcome in json.loads(json.dumps(steps))]


def _python(name: str, bootstrap: str) -> script.Steps:
    makers: dict[str, Callable[[str], adapters.Client]] = {c.name: c for c in adapters.CLIENTS}
    admin = ADMINS[name](bootstrap)
    try:
        return script.hold(makers[name](bootstrap), admin)
    finally:
        admin.close()


def _java(bootstrap: str) -> script.Steps:
    ran = subprocess.run(
        kafka_classes.command(str(PROGRAM), bootstrap, log="off"),
        capture_output=True,
        timeout=JAVA_TIMEOUT_S,
    )
    if ran.returncode != 0:
        raise RuntimeError((ran.stdout + ran.stderr).decode(errors="replace"))
    return [json.loads(line) for line in ran.stdout.splitlines()]
