"""Transactions of three brokers of which some are killed: the leader of a partition with records in
an open transaction, then the transaction coordinator between its records and the outcome.

A committed record is read once and in order, an aborted one never, and nothing is left open.
"""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until
from tests.clients.adapters import Confluent
from tests.support import ended_sessions

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]

TOPIC, ID, STATE_TOPIC = "invoices", "biller", "__transaction_state"
PARTITIONS = 3
TRANSACTIONS = 90
ABORTED_EVERY = 3
LEADER_KILLED_IN, COORDINATOR_KILLED_IN = 30, 60
STATE_PARTITIONS = 3
CALL_S = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {
        "auto.leader.rebalance.enable": False,
        "transaction.state.log.num.partitions": STATE_PARTITIONS,
    }
    with Cluster(3, settings, topics={TOPIC: PARTITIONS}) as made:
        yield made


def is_aborted(number: int) -> bool:
    return number % ABORTED_EVERY == 0


class Billing:
    """A record with its number in each partition, a transaction each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": ID,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(CALL_S)

    def run(self, number: int) -> None:
        """Again where an error lets the transaction be aborted; its records are aborted ones."""
        while True:
            try:
                self._attempt(number)
                return
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._producer.abort_transaction(CALL_S)

    def _attempt(self, number: int) -> None:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, b"%d" % number, partition=partition)
        assert self._producer.flush(CALL_S) == 0
        self._kill(number)
        if is_aborted(number):
            self._producer.abort_transaction(CALL_S)
        else:
            self._producer.commit_transaction(CALL_S)

    def _kill(self, number: int) -> None:
        if number == LEADER_KILLED_IN:
            ended_sessions.kill(self._cluster, self._cluster.leader(TOPIC, 0))
        elif number == COORDINATOR_KILLED_IN:
            place = partition_for(ID, STATE_PARTITIONS)
            ended_sessions.kill(self._cluster, self._cluster.leader(STATE_TOPIC, place))


def test_each_committed_record_is_read_once(cluster: Cluster) -> None:
    billing = Billing(cluster)
    for number in range(TRANSACTIONS):
        if number == (LEADER_KILLED_IN + COORDINATOR_KILLED_IN) // 2:
            cluster.heal()
        billing.run(number)
    cluster.heal()
    committed = [b"%d" % number for number in range(TRANSACTIONS) if not is_aborted(number)]
    client = Confluent(cluster.bootstrap)
    for partition in range(PARTITIONS):
        found = client.consume(TOPIC, len(committed), partition=partition, committed=True)
        assert [each.value for each in found] == committed
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wait_until(
        lambda: (
            ends(admin, IsolationLevel.READ_COMMITTED)
            == ends(admin, IsolationLevel.READ_UNCOMMITTED)
        ),
        "no transaction is open",
    )


def ends(admin: AdminClient, isolation: IsolationLevel) -> list[int]:
    asked = {
        confluent_kafka.TopicPartition(TOPIC, each): OffsetSpec.latest()
        for each in range(PARTITIONS)
    }
    found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_S)
    return [each.result().offset for each in found.values()]
