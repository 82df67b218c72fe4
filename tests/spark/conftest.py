"""A broker for the tests of Spark's jobs, and a hand to write into it and to land from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker


class Landing:
    """The streaming job in this process: tables in a directory of the test's own."""

    def __init__(self, spark: Any, bootstrap: str, place: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.tables = str(place / "tables")
        self.said: list[str] = []

    def options(self, *more: str) -> Any:
        from spark_jobs import stream

        where = ["--bootstrap-server", self.bootstrap, "--tables", self.tables]
        quiet = [] if "--progress" in more else ["--no-progress"]
        return stream.arguments([*where, *quiet, *(one for one in more if one != "--progress")])

    def run(self, *more: str, **others: Any) -> list[str]:
        """Available-now and without progress unless `more` says otherwise; what the job said."""
        from spark_jobs import stream

        self.said = []
        others.setdefault("stop", threading.Event())
        stream.land(self.spark, self.options(*more), say=self.said.append, **others)
        return self.said

    def rows(self, table: str, **how: Any) -> list[Any]:
        """By source."""
        from spark_jobs import tables

        order = ("source_topic", "source_partition", "source_offset")
        frame = tables.read(self.spark, self.tables, table, **how)
        return list(frame.orderBy(*order).collect())

    def offsets(self, table: str) -> list[tuple[int, int]]:
        """(partition, offset) of every row, retries too."""
        kept = self.rows(table, repeats=True)
        return [(row.source_partition, row.source_offset) for row in kept]


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[PlainBroker]:
    """For tests that leave it as it is."""
    with PlainBroker({**KEEPS_WHAT_IS_OLD, "auto.create.topics.enable": False}) as broker:
        yield broker


@pytest.fixture
def landing(spark: Any, shared_broker: PlainBroker, tmp_path: Path) -> Landing:
    return Landing(spark, shared_broker.bootstrap, tmp_path)


@pytest.fixture
def client(shared_broker: PlainBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap) as made:
        yield made


Send = Callable[..., None]


@pytest.fixture
def send(client: Client) -> Send:
    """send(topic, values, partition=0): records, the topic made with `partitions` if need be."""

    def do(topic: str, values: Sequence[bytes], partition: int = 0, partitions: int = 1) -> None:
        create(client, topic, partitions)
        Producer(client, topic, partition=partition).send(
            [Record(key=b"k", value=value) for value in values]
        )

    return do


def create(client: Client, topic: str, partitions: int = 1) -> None:
    """Unless it is there."""
    if topic not in client.metadata(None).topics:
        client.create_topics([NewTopic(topic, partitions)])
