"""Partitions move between the data directories of a broker that serves, as Apache Kafka's own tool
asks for it; and what a kill in the midst of that leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.testing.inspection import wait_until
from tests.clients.agents.tools import Tools
from tests.support import broker_settings
from tests.support.read_topic import read_topic
from tests.system.test_failed_directory import TwoDirectories

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(240)]

WAIT_S = 60.0
PARTITIONS = range(2)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TwoDirectories]:
    with TwoDirectories({"log.initial.task.delay.ms": 0, "log.segment.delete.delay.ms": 0}) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        wanted = NewTopic("words", len(PARTITIONS), 1, config={"segment.bytes": str(1 << 20)})
        admin.create_topics([wanted])["words"].result(WAIT_S)
        yield made


@pytest.fixture
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


def place_of(broker: TwoDirectories, partition: int) -> list[str]:
    return [each.name for each in broker.log_dirs if (each / f"words-{partition}").is_dir()]


def futures(broker: TwoDirectories) -> list[tuple[str, bool]]:
    """Where logs are on their way to, and whether anything of them is there."""
    with Client(broker.bootstrap) as client:
        (here,) = client.log_directories().values()
    return [(each.path, log.size_bytes > 0) for each in here for log in each.logs if log.future]


def other(broker: TwoDirectories, partition: int) -> Path:
    (path,) = [each for each in broker.log_dirs if each.name not in place_of(broker, partition)]
    return path


def values_in(broker: TwoDirectories) -> list[str]:
    return sorted(found.value.decode() for found in read_topic(broker.bootstrap, "words"))


@contextmanager
def written_all_the_while(broker: TwoDirectories) -> Iterator[list[str]]:
    """What is acknowledged to a busy producer, which no error may reach."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "retries": 10**6}
    )
    acknowledged: list[str] = []
    failed: list[object] = []
    stop = threading.Event()

    def note(error: object, message: confluent_kafka.Message) -> None:
        if error:
            failed.append(error)
        else:
            acknowledged.append((message.value() or b"").decode())

    def write() -> None:
        number = 0
        while not stop.is_set():
            producer.poll(0.002)
            while number - len(acknowledged) - len(failed) < 200:
                value = f"{number} " + "." * 1_000
                producer.produce("words", value, partition=number % 2, on_delivery=note)
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()
    assert producer.flush(WAIT_S) == 0 and not failed


def test_apache_kafkas_tool_moves_a_partition_under_load(
    broker: TwoDirectories, tools: Tools, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"

    def run(*arguments: str) -> str:
        at = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan))
        ran = tools.attempt("reassign.ReassignPartitionsCommand", *at, *arguments)
        assert ran.returncode == 0, ran.stderr.decode() + ran.stdout.decode()
        return ran.stdout.decode()

    with written_all_the_while(broker) as acknowledged:
        for _ in range(4):
            wait_until(lambda: len(acknowledged) > 3_000, "a few segments")
            targets = [other(broker, partition) for partition in PARTITIONS]
            parts = [
                {"topic": "words", "partition": partition, "replicas": [1], "log_dirs": [str(path)]}
                for partition, path in zip(PARTITIONS, targets, strict=True)
            ]
            plan.write_text(json.dumps({"version": 1, "partitions": parts}))
            run("--execute")
            for partition, target in zip(PARTITIONS, targets, strict=True):
                wait_until(
                    lambda: place_of(broker, partition) == [target.name],  # noqa: B023
                    "its new place",
                )  # fmt: skip
            wait_until(lambda: futures(broker) == [], "none is on its way")
            verified = run("--verify")
            for partition in PARTITIONS:
                assert f"Reassignment of replica words-{partition}-1 completed" in verified, (
                    verified
                )
    assert values_in(broker) == sorted(acknowledged)


def test_a_move_is_listed_held_up_killed_and_goes_on(broker: TwoDirectories) -> None:
    with written_all_the_while(broker) as acknowledged:
        wait_until(lambda: len(acknowledged) > 6_000, "a few segments")
    target, before = other(broker, 0), place_of(broker, 0)
    broker_settings.change(broker.bootstrap, RATE, 100_000)
    asked = ["logdir", "move", "words:0", "--to", str(target), "-b", broker.bootstrap]
    assert main(asked) == 0

    wait_until(lambda: futures(broker) == [(str(target), True)], "a future log")
    assert place_of(broker, 0) == before
    broker.kill9()
    broker.start()
    assert values_in(broker) == sorted(acknowledged)
    broker_settings.change(broker.bootstrap, RATE, 1 << 40)
    wait_until(lambda: place_of(broker, 0) == [target.name], "its new place")
    assert values_in(broker) == sorted(acknowledged)
    wait_until(lambda: len(list(broker.data_dir.glob("*/words-0*"))) == 1, "nothing left over")
    assert main([*asked, "--wait"]) == 0 and futures(broker) == []
    assert main([*asked[:4], str(before), "-b", broker.bootstrap]) == 1
