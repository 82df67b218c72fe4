"""`kbroker secure init`: brokers start with its files, and clients connect as its lines say."""

from __future__ import annotations

import asyncio
import io
import json
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.command_config import login_of_file
from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.peer.address import Address
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic as OwnNewTopic
from kbroker.peer.messages import decode_create_topics, encode_create_topics
from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import ServerProcess
from kbroker.testing.zookeeper.server import ZooKeeperServer
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.clients.agents.tools import Tools
from tests.support import requirements

pytestmark = pytest.mark.client

WAIT_S = 30


class Started(PlainBroker):
    """A broker by one of the files, and nothing else."""

    def __init__(self, properties: Path) -> None:
        super().__init__()
        self._properties = properties

    def command(self) -> list[str]:
        words = super().command()
        words = words[: words.index("--data-dir")]
        return [*words, "--ready-file", str(self.ready_path), str(self._properties)]


class World:
    def __init__(self, directory: Path, printed: str, broker: ServerProcess) -> None:
        self.directory, self.printed, self.broker = directory, printed, broker

    @property
    def password(self) -> str:
        return (self.directory / "user.password").read_text()

    def librdkafka(self) -> dict[str, str]:
        lines = (self.directory / "librdkafka.conf").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def snippet(self, title: str) -> str:
        """The lines of a client that were printed."""
        match = re.search(rf"(?m)^# {title}\b.*\n((?:.+\n)+)", self.printed)
        assert match is not None, self.printed
        return match[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("secure") / "made here"
    words = ["secure", "init", str(directory), "--broker", f"127.0.0.1:{free_port()}"]
    with redirect_stdout(io.StringIO()) as output:
        assert main(words) == 0
    printed = output.getvalue()
    properties = directory / "broker-1.properties"
    with properties.open("a") as file:
        file.write("admin.listeners=http://127.0.0.1:0\noffsets.topic.num.partitions=1\n")
    with Started(properties) as broker:
        yield World(directory, printed, broker)


def test_files_and_lines(world: World) -> None:
    modes = {
        each.name: stat.S_IMODE(each.stat().st_mode)
        for each in world.directory.iterdir()
        if each.is_file()
    }
    assert modes.pop("ca.pem") == 0o644
    assert set(modes) == {
        "ca.key", "user.password", "client.properties", "librdkafka.conf", "broker-1.pem",
        "broker-1.properties", "audit-1.log",
    }  # fmt: skip
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(world.directory.stat().st_mode) == 0o700
    assert world.password not in world.printed
    for title in ("Java", "librdkafka", "kcat", "kafka-python", "aiokafka"):
        assert f"# {title}" in world.printed
    assert "// franz-go" in world.printed


def test_librdkafka_writes_and_reads(world: World) -> None:
    producer = confluent_kafka.Producer(world.librdkafka())
    for at in range(10):
        producer.produce("t", b"%d" % at)
    assert producer.flush(WAIT_S) == 0
    group: dict[str, Any] = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**world.librdkafka(), **group})
    consumer.subscribe(["t"])
    assert [each.value() for each in consumer.consume(10, WAIT_S)] == [b"%d" % n for n in range(10)]
    consumer.close()


def test_kafka_python_by_the_printed_lines(world: World) -> None:
    names: dict[str, Any] = {}
    exec(world.snippet("kafka-python").replace("KafkaProducer(b", "made = KafkaProducer(b"), names)
    producer = names["made"]
    producer.send("t", b"kafka-python").get(WAIT_S)
    producer.close()


def test_aiokafka_by_the_printed_lines(world: World) -> None:
    async def send() -> None:
        names: dict[str, Any] = {}
        text = world.snippet("aiokafka").replace("AIOKafkaProducer(b", "made = AIOKafkaProducer(b")
        exec(text, names)
        async with names["made"] as producer:
            await producer.send_and_wait("t", b"aiokafka")

    asyncio.run(send())


def test_kcat_by_the_printed_line(world: World) -> None:
    requirements.kcat()
    command = world.snippet("kcat").strip().split(" -F ")[0].split()
    file = re.search(r"-F (.*) -L", world.snippet("kcat"))
    assert file is not None
    done = subprocess.run([*command, "-F", file[1], "-L"], capture_output=True, timeout=60)
    if version_of_kcat() < (2, 6, 1):  # it sends a wrong nonce, which Apache Kafka 4 refuses, too
        assert b"invalid credentials with SASL mechanism SCRAM" in done.stderr
    else:
        assert done.returncode == 0 and b"broker 1 at 127.0.0.1" in done.stdout, done.stderr


def version_of_kcat() -> tuple[int, ...]:
    """Of the librdkafka inside."""
    text = subprocess.run([requirements.kcat(), "-V"], capture_output=True, text=True).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", text)
    assert found is not None, text
    return tuple(map(int, found.groups()))


@pytest.mark.java
def test_java_by_the_properties(world: World, tools: Tools) -> None:
    file = str(world.directory / "client.properties")
    bootstrap = world.librdkafka()["bootstrap.servers"]
    words = ("--bootstrap-server", bootstrap, "--topic", "t", "--command-config", file)
    produced = tools.attempt("ConsoleProducer", *words, stdin=b"java\n")
    assert produced.returncode == 0, produced.stderr.decode()
    read = tools.attempt(
        "consumer.ConsoleConsumer", *words, "--from-beginning", "--timeout-ms", "10000",
    )  # fmt: skip
    assert b"java" in read.stdout, read.stderr.decode()


def test_our_own_commands(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(world.directory / "client.properties")
    bootstrap = world.librdkafka()["bootstrap.servers"]
    assert main(["topic", "list", "-b", bootstrap, "--command-config", file]) == 0
    words = ["acl", "explain", "User:eve", "Read", "topic:t", "-o", "json"]
    assert main([*words, "-b", bootstrap, "--command-config", file]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["reason"] == "DefaultDeny"


def test_others_are_not_let_in(world: World) -> None:
    said: list[str] = []
    settings: dict[str, Any] = {**world.librdkafka(), "sasl.password": "wrong"}
    settings["error_cb"] = lambda error: said.append(error.str())
    producer = confluent_kafka.Producer(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.list_topics(timeout=2)
    producer.poll(1)
    assert any("invalid credentials" in each for each in said), said
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            bootstrap_servers=settings["bootstrap.servers"], bootstrap_timeout_ms=1_000
        )
    records = [
        json.loads(line) for line in (world.directory / "audit-1.log").read_text().splitlines()
    ]
    assert any(
        (each["event"], each.get("claimed_user")) == ("Authentication", "admin") for each in records
    )


def test_nothing_is_overwritten(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = (world.directory / "ca.key").read_bytes()
    assert main(["secure", "init", str(world.directory)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (world.directory / "ca.key").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--broker", "a", "--broker", "b"], "needs ZooKeeper"),
        (["--broker", "a:99999"], "is no HOST"),
        (["--broker", "a b"], "is no host name"),
        (["--user", "broker"], "cannot be the first user"),
        (["--broker", "a", "--broker", "a", "--zookeeper", "z:1"], "one address"),
    ],
)
def test_arguments_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["secure", "init", str(tmp_path / "x"), *words]) == 2
    assert why in capsys.readouterr().err


def test_three_brokers(tmp_path: Path) -> None:
    """They log in at each other over TLS, and know the users that were made without them."""
    ports = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer())
        words = [word for port in ports for word in ("--broker", f"127.0.0.1:{port}")]
        directory = tmp_path / "secure"
        made = ["secure", "init", str(directory), *words, "--zookeeper", zookeeper.connect]
        assert main(made) == 0
        for number in (1, 2, 3):
            properties = directory / f"broker-{number}.properties"
            with properties.open("a") as file:
                file.write("admin.listeners=http://127.0.0.1:0\n")
            stack.enter_context(Started(properties))
        lines = (directory / "librdkafka.conf").read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines)
        admin = AdminClient(settings)
        topic = NewTopic("t", num_partitions=3, replication_factor=3)
        for created in admin.create_topics([topic]).values():
            created.result(WAIT_S)
        producer = confluent_kafka.Producer({**settings, "acks": "all"})
        for at in range(30):
            producer.produce("t", b"%d" % at, partition=at % 3)
        assert producer.flush(WAIT_S) == 0

        def in_sync() -> bool:
            partitions = admin.list_topics("t", timeout=WAIT_S).topics["t"].partitions.values()
            return all(len(each.isrs) == 3 for each in partitions)

        eventually(in_sync, "three replicas in sync")
        _create_at_each_broker(directory, ports)
        eventually(lambda: len(_created_by(directory)) == 4, "a line for each topic")
        changes = _created_by(directory)
        assert sorted(each["items"][0]["resource"] for each in changes) == [
            "topic:at-0", "topic:at-1", "topic:at-2", "topic:t",
        ]  # fmt: skip
        assert {each["outcome"] for each in changes} == {"done"}
        assert {each["host"] for each in changes} == {"127.0.0.1"}
        assert len({each["node_id"] for each in changes}) == 1


def _created_by(directory: Path) -> list[dict[str, Any]]:
    """What the audit logs of the three brokers have of new topics."""
    records = [
        json.loads(line)
        for number in (1, 2, 3)
        for line in (directory / f"audit-{number}.log").read_text().splitlines()
    ]
    return [
        each
        for each in records
        if each["event"] == "CreateTopics" and each["principal"] == "User:admin"
    ]


def _create_at_each_broker(directory: Path, ports: list[int]) -> None:
    """Brokers forward what is for the controller; it records the change for the client."""
    login = login_of_file(str(directory / "client.properties"))
    for number, port in enumerate(ports):
        topics = [OwnNewTopic(f"at-{number}", 1, 3)]
        with Client(f"127.0.0.1:{port}", login=login) as client:
            (result,) = client.cluster.ask(
                Address("127.0.0.1", port),
                ApiKey.CREATE_TOPICS,
                partial(encode_create_topics, topics=topics, timeout_ms=1000, validate_only=False),
                decode_create_topics,
            )
        assert result.error is ErrorCode.NONE
