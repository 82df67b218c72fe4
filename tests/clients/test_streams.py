"""Kafka Streams' own word count, unchanged, without exactly-once.

It makes two internal topics, keeps its counts in a changelog, and finds them again there
after its process was killed and its local state removed.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients import adapters
from tests.clients.adapters import Confluent, Consumer, Record
from tests.clients.agents.driver import comes_to_be, eventually
from tests.clients.agents.groups import Groups
from tests.support import jars, kafka_classes

pytestmark = [
    pytest.mark.client, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip

EXAMPLES = "org.apache.kafka.streams.examples"
IN, OUT = "streams-plaintext-input", "streams-wordcount-output"
STOP_S = 30

Counts = dict[bytes | None, int]


@pytest.fixture(scope="module")
def topics(admin: adapters.Admin) -> Iterator[None]:
    for name in (IN, OUT):
        admin.create(name, 1)
    yield
    made = [name for name in admin.topics() if name.startswith("streams-")]
    admin.delete(*made)


@contextmanager
def example(name: str, bootstrap: str, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = place / "streams.properties"
    settings.write_text(
        f"bootstrap.servers={bootstrap}\ncommit.interval.ms=200\nstate.dir={place}/state\n"
        "session.timeout.ms=6000\nheartbeat.interval.ms=500\n"
    )
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            kafka_classes.command(
                f"{EXAMPLES}.{name}", str(settings), kafka=jars.STREAMS, log="warn"
            ),
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
                log.seek(0)
                print(log.read().decode(errors="replace")[-10_000:])


def counted(consumer: Consumer, counts: Counts) -> Counts:
    for record in consumer.poll(0.2):
        counts[record.key] = int.from_bytes(record.value or b"", "big")
    return counts


def test_word_count(
    topics: None, bootstrap: str, groups: Groups, tmp_path: Path, admin: adapters.Admin
) -> None:
    client = Confluent(bootstrap)
    counts: Counts = {}
    client.produce(IN, [Record(b"all streams lead to kafka"), Record(b"hello kafka streams")])
    with client.consumer(OUT) as consumer:
        with example("wordcount.WordCountDemo", bootstrap, tmp_path) as process:
            eventually(lambda: counted(consumer, counts).get(b"streams") == 2, "words are counted")
            comes_to_be(lambda: groups.state("streams-wordcount").name, "STABLE")
            eventually(
                lambda: sum(groups.committed("streams-wordcount").values()) >= 2, "it commits"
            )
            process.kill()
            process.wait(STOP_S)
        assert counts == {b"all": 1, b"streams": 2, b"lead": 1, b"to": 1, b"kafka": 2, b"hello": 1}
        internal = [name for name in admin.topics() if name.startswith("streams-wordcount-")]
        assert {name.rpartition("-")[2] for name in internal} >= {"changelog", "repartition"}
        client.produce(IN, [Record(b"kafka again")])
        elsewhere = tmp_path / "elsewhere"  # without the state on disk
        elsewhere.mkdir()
        with example("wordcount.WordCountDemo", bootstrap, elsewhere):
            # At least once: what was not committed when it died may count twice.
            eventually(lambda: b"again" in counted(consumer, counts), "it goes on")
            eventually(lambda: counted(consumer, counts)[b"kafka"] >= 3, "from its state")
