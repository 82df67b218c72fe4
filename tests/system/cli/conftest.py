"""`kbroker ...` through its entry point, against a broker in a process of its own.

Which broker, by environment, as for tests/clients: KBROKER_TEST_REFERENCE=kafka starts Apache
Kafka, KBROKER_TEST_BOOTSTRAP=host:port takes one that runs already. Every test here passes on both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from tests.support import servers

Run = Callable[..., tuple[int, str, str]]
Document = Callable[..., Any]
MakeTopic = Callable[..., str]

_numbers = count()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    given = os.environ.get("KBROKER_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with servers.make() as broker:
        yield broker.bootstrap
        servers.assert_nothing_unexpected(broker)


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """run("topic", "list") -> status, standard output, standard error."""

    def kbroker(*words: str) -> tuple[int, str, str]:
        status = main([*words, "-b", bootstrap])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return kbroker


@pytest.fixture
def document(run: Run) -> Document:
    """The JSON that a command which must succeed answers with `-o json`."""

    def read(*words: str) -> Any:
        status, out, err = run(*words, "-o", "json")
        assert (status, err) == (0, ""), (out, err)
        return json.loads(out)

    return read


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test has, nor another run against the same broker."""
    return f"cli-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_topic(client: Client) -> Iterator[MakeTopic]:
    """make_topic(partitions=1, records=0) -> its name; `records` go to each partition."""
    made: list[str] = []

    def make(partitions: int = 1, records: int = 0, first_ms: int = 1000) -> str:
        topic = f"cli-topic-{os.getpid()}-{next(_numbers)}"
        client.create_topics([NewTopic(topic, partitions)])
        made.append(topic)
        client.partitions(topic, auto_create=True)  # which waits for it to be known
        for partition in range(partitions if records else 0):
            Producer(client, topic, partition=partition).send(
                Record(None, b"%d" % number, timestamp_ms=first_ms + number)
                for number in range(records)
            )
        return topic

    yield make
    client.delete_topics(made)
