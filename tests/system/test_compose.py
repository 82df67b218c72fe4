"""deploy/compose.yaml and deploy/Dockerfile: what they say starts a cluster.

There is no Docker here. The services of kbroker are started as processes, with the command of the
image and the environment of the compose file; only names of hosts, ports and places are others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.zookeeper.server import ZooKeeperServer
from lab.ports import free_port
from tests.clients.agents.driver import eventually as until
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]

COMPOSE = ROOT / "deploy" / "compose.yaml"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
BROKERS = ("kbroker-1", "kbroker-2", "kbroker-3")
STOP_S = 60


def of_the_image(instruction: str) -> list[str]:
    (words,) = re.findall(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.M)
    return list(json.loads(words))


@dataclass
class Here:
    """Where what the file names is on this machine."""

    zookeeper: str
    inside: dict[str, int] = field(default_factory=lambda: {b: free_port() for b in BROKERS})
    outside: dict[str, int] = field(default_factory=lambda: {b: free_port() for b in BROKERS})

    def environment(self, name: str, service: dict[str, Any]) -> dict[str, str]:
        ((published, container),) = (
            re.fullmatch(r"127\.0\.0\.1:(\d+):(\d+)", each).groups()  # type: ignore[union-attr]
            for each in service["ports"]
        )
        found = {key: str(value) for key, value in service["environment"].items()}
        assert found["KBROKER_ZOOKEEPER_CONNECT"] == "zookeeper:2181"
        found["KBROKER_ZOOKEEPER_CONNECT"] = self.zookeeper
        listeners = found["KBROKER_LISTENERS"]
        assert f"OUTSIDE://:{container}" in listeners and "INSIDE://:19092" in listeners
        found["KBROKER_LISTENERS"] = listeners.replace(
            "INSIDE://:19092", f"INSIDE://127.0.0.1:{self.inside[name]}"
        ).replace(f"OUTSIDE://:{container}", f"OUTSIDE://127.0.0.1:{self.outside[name]}")
        advertised = found["KBROKER_ADVERTISED_LISTENERS"]
        assert advertised == f"INSIDE://{name}:19092,OUTSIDE://localhost:{published}"
        found["KBROKER_ADVERTISED_LISTENERS"] = (
            f"INSIDE://127.0.0.1:{self.inside[name]},OUTSIDE://localhost:{self.outside[name]}"
        )
        return found


def command(data_dir: Path) -> list[str]:
    places = {
        "kbroker": [sys.executable, "-m", "kbroker"],
        "/etc/kbroker/durable.properties": [str(ROOT / "deploy" / "durable.properties")],
        "/var/lib/kbroker": [str(data_dir)],
    }
    words = [*of_the_image("ENTRYPOINT"), *of_the_image("CMD")]
    assert places.keys() < set(words)
    assert "COPY deploy/durable.properties /etc/kbroker/durable.properties" in DOCKERFILE
    return [each for word in words for each in places.get(word, [word])]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    assert services.keys() == {"zookeeper", *BROKERS}
    with ExitStack() as ends:
        here = Here(ends.enter_context(ZooKeeperServer()).connect)
        processes = []
        for name in BROKERS:
            environment = os.environ | here.environment(name, services[name])
            data_dir = tmp_path / name
            log = ends.enter_context((tmp_path / f"{name}.log").open("w"))
            processes.append(
                subprocess.Popen(command(data_dir), env=environment, cwd=ROOT, stderr=log)
            )
            ends.callback(processes[-1].kill)
        yield here
        for process in processes:
            process.terminate()
        assert [process.wait(STOP_S) for process in processes] == [0] * len(BROKERS)


def test_three_brokers_that_clients_outside_reach(here: Here) -> None:
    bootstrap = ",".join(f"localhost:{port}" for port in here.outside.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def advertised() -> dict[int, int]:
        try:
            brokers = admin.list_topics(timeout=10).brokers
        except confluent_kafka.KafkaException:  # none of them listens by now
            return {}
        return {each.id: each.port for each in brokers.values()}

    wanted = dict(enumerate(here.outside.values(), start=1))
    until(lambda: advertised() == wanted, "all three are there, by their outer addresses", 60)
    created = admin.create_topics([NewTopic("orders", 3)])  # three replicas: the durable settings
    created["orders"].result(30)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    )
    failed: list[object] = []
    for number in range(30):
        producer.produce("orders", b"%d" % number, on_delivery=lambda e, _: e and failed.append(e))
    assert producer.flush(30) == 0 and not failed

    def placed() -> list[list[int]]:
        partitions = admin.list_topics("orders", timeout=10).topics["orders"].partitions
        return [sorted(each.replicas) for each in partitions.values()]

    until(lambda: placed() == [[1, 2, 3]] * 3, "each broker has a replica of each, as all know", 60)
