"""The compose files of deploy/: what they say starts one broker and clusters.

There is no Docker here. The services of kbroker are started as processes, with the command and the
variables of the image and of the compose file; only names of hosts, ports and places are others.
The image itself is tested in test_image.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.zookeeper.server import ZooKeeperServer
from lab.ports import free_port
from release import image
from tests.clients.agents.driver import eventually as until
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]

DEPLOY = ROOT / "deploy"
STOP_S = 60
INSIDE_PORT, OUTSIDE_PORT = 19092, 9092


class Services:
    """The services of a compose file, on this machine."""

    def __init__(self, name: str, directory: Path, zookeeper: str | None) -> None:
        self.all = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"]
        self.names = [each for each in self.all if each.startswith("kbroker")]
        self.directory = directory
        self.outside = {each: free_port() for each in self.names}
        self._inside = {each: free_port() for each in self.names}
        self._zookeeper = zookeeper

    def here(self, text: str, service: str = "") -> str:
        """A word of the file, with the names and ports of this machine."""
        if self._zookeeper is not None:
            text = text.replace("zookeeper:2181", self._zookeeper)
        for name in self.names:
            text = text.replace(f"{name}:{INSIDE_PORT}", f"127.0.0.1:{self._inside[name]}")
        if service in self.names:
            text = text.replace(f"localhost:{INSIDE_PORT}", f"127.0.0.1:{self._inside[service]}")
            text = text.replace(f"://:{INSIDE_PORT}", f"://127.0.0.1:{self._inside[service]}")
            outside = self.outside[service]
            text = text.replace(f"://:{OUTSIDE_PORT}", f"://127.0.0.1:{outside}")
            text = re.sub(r"\blocalhost:\d+", f"localhost:{outside}", text)
        text = text.replace("/etc/kbroker/durable", str(DEPLOY / "durable"))
        text = text.replace("/etc/kbroker/secure", str(self.directory / "secure"))
        own = self.directory / (service if len(self.names) > 1 else "kbroker")
        return text.replace("/var/lib/kbroker", str(own))

    def command(self, service: str) -> list[str]:
        each = self.all[service]
        assert each["image"] == f"{image.NAME}:0.1.0" and each["read_only"]
        words = each.get("command", ["start"])
        return [sys.executable, "-m", "kbroker", *(self.here(word, service) for word in words)]

    def environment(self, service: str) -> dict[str, str]:
        given = self.all[service].get("environment", {})
        made = {name: self.here(str(text), service) for name, text in given.items()}
        defaults = self.directory / f"{service}.image.properties"
        text = (DEPLOY / "image.properties").read_text(encoding="utf-8")
        defaults.write_text(self.here(text, service))
        return {
            **os.environ, "KBROKER_CONTAINER": str(defaults), "KBROKER_ADMIN_LISTENERS": "none",
            **made,
        }  # fmt: skip

    def published(self, service: str) -> int:
        """The port that clients of the machine come to, which is the advertised one, too."""
        ((port, inner),) = (
            re.fullmatch(r"127\.0\.0\.1:(\d+):(\d+)", each).groups()  # type: ignore[union-attr]
            for each in self.all[service]["ports"]
        )
        advertised = self.all[service]["environment"]["KBROKER_ADVERTISED_LISTENERS"]
        assert int(inner) == OUTSIDE_PORT and advertised.endswith(f"OUTSIDE://localhost:{port}")
        return int(port)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{port}" for port in self.outside.values())

    def run(self, service: str) -> str:
        """One that ends by itself."""
        done = subprocess.run(
            self.command(service), env=self.environment(service), cwd=ROOT, capture_output=True,
            text=True, timeout=STOP_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, ends: ExitStack) -> list[subprocess.Popen[bytes]]:
        made = []
        for name in self.names:
            log = ends.enter_context((self.directory / f"{name}.log").open("w"))
            environment = self.environment(name)
            process = subprocess.Popen(self.command(name), env=environment, cwd=ROOT, stderr=log)
            made.append(process)
            ends.callback(process.kill)
        return made

    def client(self) -> dict[str, Any]:
        """Settings of librdkafka, with a login if `secure init` has run."""
        found = sorted(self.directory.rglob("user.password"))
        if not found:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": found[0].read_text(),
            "ssl.ca.location": str(found[0].with_name("ca.pem")),
        }


@pytest.mark.parametrize("name", ["compose-one.yaml", "compose.yaml", "compose-secure.yaml"])
def test_commands_in_a_container_are_given_addresses_that_it_reaches(name: str) -> None:
    """Those of the listener that they come to: of the network, or of this one container."""
    services = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"]
    brokers = {each: one for each, one in services.items() if each.startswith("kbroker")}
    for broker, service in brokers.items():
        variables = service["environment"]
        port = variables["KBROKER_BOOTSTRAP"].rpartition(":")[2]
        listeners = dict(
            re.fullmatch(r"(\w+)://:(\d+)", each).groups()  # type: ignore[union-attr]
            for each in variables["KBROKER_LISTENERS"].split(",")
        )
        (listener,) = (each for each, bound in listeners.items() if bound == port)
        advertised = variables["KBROKER_ADVERTISED_LISTENERS"].split(",")
        (address,) = (each for each in advertised if each.startswith(f"{listener}://"))
        mine = f"{listener}://localhost:{port}"
        assert address == f"{listener}://{broker}:{port}" or (len(brokers) == 1 and address == mine)


@pytest.fixture
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    with ExitStack() as ends:
        zookeeper = None
        if request.param != "compose-one.yaml":
            zookeeper = ends.enter_context(ZooKeeperServer()).connect
        made = Services(request.param, tmp_path, zookeeper)
        if "secure" in made.all:
            assert "kbroker start" in made.run("secure")
            assert "nothing is changed" in made.run("secure")  # as every later `up` has it
        processes = made.start(ends)
        yield made
        for process in processes:
            process.terminate()
        assert [process.wait(STOP_S) for process in processes] == [0] * len(processes)


ALL = pytest.mark.parametrize(
    "services", ["compose-one.yaml", "compose.yaml", "compose-secure.yaml"], indirect=True
)


@ALL
def test_clients_outside_reach_every_broker(services: Services) -> None:
    ports = [services.published(name) for name in services.names]
    assert ports == list(range(OUTSIDE_PORT, OUTSIDE_PORT + len(ports)))
    admin = AdminClient(services.client())

    def advertised() -> dict[int, int]:
        try:
            brokers = admin.list_topics(timeout=10).brokers
        except confluent_kafka.KafkaException:  # none of them listens by now
            return {}
        return {each.id: each.port for each in brokers.values()}

    wanted = dict(enumerate(services.outside.values(), start=1))
    until(lambda: advertised() == wanted, "all are there, by their outer addresses", 60)
    created = admin.create_topics([NewTopic("orders", 3)])  # as many replicas as brokers
    created["orders"].result(30)
    producer = confluent_kafka.Producer({**services.client(), "enable.idempotence": True})
    failed: list[object] = []
    for number in range(30):
        producer.produce("orders", b"%d" % number, on_delivery=lambda e, _: e and failed.append(e))
    assert producer.flush(30) == 0 and not failed

    def placed() -> list[list[int]]:
        partitions = admin.list_topics("orders", timeout=10).topics["orders"].partitions
        return [sorted(each.replicas) for each in partitions.values()]

    until(lambda: placed() == [sorted(wanted)] * 3, "each broker has a replica, as all know", 60)
    if "secure" in services.all:  # with its variables a command needs no options
        name = services.names[-1]
        listed = subprocess.run(
            [sys.executable, "-m", "kbroker", "topic", "list"], env=services.environment(name),
            cwd=ROOT, capture_output=True, text=True, timeout=STOP_S,
        )  # fmt: skip
        assert "orders" in listed.stdout, listed.stderr


def test_a_volume_is_mounted_where_the_image_lets_its_user_write() -> None:
    own = {name for name, entry in image.own_files().items() if entry.uid == image.USER}
    for path in DEPLOY.glob("compose*.yaml"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for service in document["services"].values():
            places = [each.split(":", 1)[1].lstrip("/") for each in service.get("volumes", [])]
            assert service["image"].startswith("zookeeper:") or own.issuperset(places)
