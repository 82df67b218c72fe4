"""Three brokers restarted one after the other: clients with their defaults go on, and see no error.

An application of each kind writes and reads all the time: with librdkafka, with aiokafka, with the
Java clients (kafka-verifiable-producer and -consumer, whose producer gets its retries back). What a
client says to itself, or to its log, is its own affair; errors of its application are not.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest

from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until
from tests.support import kafka_classes, requirements

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
GO_ON = 150  # records that are written, and read, after each restart
POLL_S = 0.1
RATE = 200  # records a second
DEFAULT_RETRIES = 2**31 - 1


class Application(Protocol):
    """Writes to a topic of its own and reads it in a group of its own until it is stopped."""

    topic: str
    written: int
    read: int
    errors: list[str]

    def stop(self) -> None: ...


class Librdkafka:
    topic = "of-librdkafka"

    def __init__(self, bootstrap: str, place: Path) -> None:
        self.written = self.read = 0
        self.errors: list[str] = []
        self._ends = threading.Event()
        at = {"bootstrap.servers": bootstrap}
        self._producer = confluent_kafka.Producer(at)
        self._consumer = confluent_kafka.Consumer(
            {**at, "group.id": self.topic, "auto.offset.reset": "earliest"}
        )
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ends.wait(1 / RATE):
            number += 1
            self._producer.produce(self.topic, b"%d" % number, on_delivery=self._note)
            self._producer.poll(0)
        if self._producer.flush(30):
            self.errors.append("records were not delivered")

    def _note(self, error: object, message: object) -> None:
        if error is None:
            self.written += 1
        else:
            self.errors.append(str(error))

    def _read(self) -> None:
        self._consumer.subscribe([self.topic])
        while not self._ends.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is None:
                self.read += 1
            else:
                self.errors.append(str(message.error()))
        self._consumer.close()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(60)


class Aiokafka:
    topic = "of-aiokafka"

    def __init__(self, bootstrap: str, place: Path) -> None:
        self.written = self.read = 0
        self.errors: list[str] = []
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        at: dict[str, Any] = {"bootstrap_servers": self._bootstrap}
        group: dict[str, Any] = {"group_id": self.topic, "auto_offset_reset": "earliest"}
        try:
            async with (
                aiokafka.AIOKafkaProducer(**at) as producer,
                aiokafka.AIOKafkaConsumer(self.topic, **at, **group) as consumer,
            ):
                await asyncio.gather(self._write(producer), self._read(consumer))
        except Exception as error:
            self.errors.append(repr(error))

    async def _write(self, producer: aiokafka.AIOKafkaProducer) -> None:
        sent: list[asyncio.Future[Any]] = []
        while not self._ends.is_set():
            delivery = await producer.send(self.topic, b"x", partition=len(sent) % PARTITIONS)
            delivery.add_done_callback(self._note)
            sent.append(delivery)
            await asyncio.sleep(1 / RATE)
        await asyncio.gather(*sent)

    def _note(self, delivery: asyncio.Future[Any]) -> None:
        self.written += not delivery.cancelled() and delivery.exception() is None

    async def _read(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        while not self._ends.is_set():
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            self.read += sum(map(len, found.values()))

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(60)


class Java:
    topic = "of-java"

    def __init__(self, bootstrap: str, place: Path) -> None:
        self.written = self.read = 0
        self.errors: list[str] = []
        at = ("--bootstrap-server", bootstrap, "--topic", self.topic)
        settings = place / "producer.properties"
        settings.write_text(f"retries={DEFAULT_RETRIES}\n")
        retries = ("--command-config", str(settings))
        self._processes = [
            self._start("VerifiableProducer", *at, "--throughput", str(RATE), *retries),
            self._start("VerifiableConsumer", *at, "--group-id", self.topic),
        ]
        tellers = (self._tell_written, self._tell_read)
        self._threads = [
            threading.Thread(target=self._listen, args=(process, tell))
            for process, tell in zip(self._processes, tellers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _start(self, tool: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            kafka_classes.command(f"org.apache.kafka.tools.{tool}", *arguments),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def _listen(
        self, process: subprocess.Popen[str], tell: Callable[[dict[str, Any]], None]
    ) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            tell(json.loads(line))

    def _tell_written(self, event: dict[str, Any]) -> None:
        self.written += event["name"] == "producer_send_success"
        if event["name"] == "producer_send_error":
            self.errors.append(str(event))

    def _tell_read(self, event: dict[str, Any]) -> None:
        if event["name"] == "records_consumed":
            self.read += event["count"]
        elif not event.get("success", True) or "exception" in event["name"]:
            self.errors.append(str(event))

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process, thread in zip(self._processes, self._threads, strict=True):
            process.wait(60)
            thread.join(60)


KINDS = (Librdkafka, Aiokafka, Java)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    requirements.java()
    topics = {kind.topic: PARTITIONS for kind in KINDS}
    # Clients of three libraries on one machine: none is to lose its session, or its place among
    # those in sync, but who is restarted.
    settings = {
        "min.insync.replicas": 2,
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings, topics=topics) as made:
        yield made


def test_no_application_notices_it(cluster: Cluster, tmp_path: Path) -> None:
    with ExitStack() as running:
        applications: list[Application] = []
        for kind in KINDS:
            applications.append(kind(cluster.bootstrap, tmp_path))
            running.callback(applications[-1].stop)
        all_go_on(applications)
        for broker_id in cluster.brokers:
            cluster.restart(broker_id)
            cluster.wait_in_sync()
            all_go_on(applications)
    for each in applications:
        assert each.errors == [], each.topic
    for of_all in (Librdkafka, Java):  # aiokafka's default is the leader's word alone
        (each,) = (one for one in applications if isinstance(one, of_all))
        stored = {record.value for record in cluster.records(each.topic)}
        assert len(stored) == each.written, each.topic


def all_go_on(applications: list[Application]) -> None:
    for each in applications:
        written, read = each.written + GO_ON, each.read + GO_ON
        wait_until(
            lambda e=each, w=written, r=read: (e.written >= w and e.read >= r) or e.errors != [],
            f"{each.topic} goes on",
            60,
        )
        assert each.errors == [], each.topic
