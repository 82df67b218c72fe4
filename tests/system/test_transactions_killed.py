"""Exactly once under kill -9 of both parties: numbers are copied from one topic to another in
transactions, while the broker and the copier are killed by turns; each number arrives once, in its
partition's order. KBROKER_TEST_REFERENCE=kafka runs the same against Apache Kafka.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import confluent_kafka
import pytest

from kbroker.testing.process import ServerProcess
from tests.clients.adapters import Admin, Confluent
from tests.clients.adapters.confluent import eventually
from tests.support import servers
from tests.system.copier import ENDED_BY_AN_ERROR

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

FROM, TO, GROUP, ID = "orders", "invoices", "biller", "biller-1"
PARTITIONS = 3
KILLS = 6
RATE = 500  # records a second
BETWEEN_KILLS_S = (0.5, 2.0)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        server = servers.make()
        stack.callback(server.close)
        yield server.start()
        servers.assert_nothing_unexpected(server)


class Numbers(threading.Thread):
    """An idempotent producer: each number once, to partition number % PARTITIONS."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="numbers")
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 240_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._ends = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._ends.wait(1 / RATE):
            self._producer.poll(0)
            try:
                self._producer.produce(FROM, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            except BufferError:  # the broker is away for long
                continue
            self.sent += 1

    def finish(self) -> None:
        self._ends.set()
        self.join()
        assert self._producer.flush(120) == 0


class Copying:
    """The copier's process, started again whenever it has ended."""

    def __init__(self, bootstrap: str) -> None:
        self._command = [
            sys.executable, "-m", "tests.system.copier", bootstrap, ID, GROUP, FROM, TO,
        ]  # fmt: skip
        self.committed = 0
        self._ends = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="copying")
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            with subprocess.Popen(self._command, stdout=subprocess.PIPE) as process:
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    self.committed += int(line)
            assert process.returncode in (-9, ENDED_BY_AN_ERROR)

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def finish(self) -> None:
        self._ends.set()
        while self._thread.is_alive():
            self.kill()
            self._thread.join(0.1)


def test_each_record_is_copied_once(server: ServerProcess) -> None:
    admin = Admin(server.bootstrap, settle=servers.reference())
    for topic in (FROM, TO):
        admin.create(topic, PARTITIONS)
    dice = random.Random(20261129)
    numbers, copying = Numbers(server.bootstrap), Copying(server.bootstrap)
    numbers.start()
    try:
        for turn in range(KILLS):
            before = copying.committed
            eventually(lambda before=before: copying.committed > before, timeout_s=90)
            time.sleep(dice.uniform(*BETWEEN_KILLS_S))  # a kill at any moment of a transaction
            if turn % 2 == 0:
                server.kill9()
                server.start()
            else:
                copying.kill()
        numbers.finish()
        client = Confluent(server.bootstrap)
        for partition in range(PARTITIONS):
            expected = [b"%d" % number for number in range(partition, numbers.sent, PARTITIONS)]
            found = client.consume(TO, len(expected), partition=partition, committed=True)
            assert [each.value for each in found] == expected
    finally:
        copying.finish()
    assert _committed_end(server.bootstrap) == numbers.sent


def _committed_end(bootstrap: str) -> int:
    """Every record that a reader of committed ones gets, of all partitions."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    places = [confluent_kafka.TopicPartition(TO, each, 0) for each in range(PARTITIONS)]
    consumer.assign(places)
    count = 0
    ends: set[int | None] = set()
    while len(ends) < PARTITIONS:
        for each in consumer.consume(1_000, 1.0):
            error = each.error()
            if error is None:
                count += 1
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ends.add(each.partition())
    consumer.close()
    return count
