"""A transactional producer is refused at once and for good, with the reason where it shows one."""

from __future__ import annotations

import asyncio

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from kbroker.handlers.transactions import NO_TRANSACTIONS
from tests.clients.conftest import Server
from tests.support import requirements

pytestmark = pytest.mark.client

TRANSACTIONAL_ID = "orders-writer"
# Far beyond what a refusal takes; a client that asks again is still at it then.
TIMEOUT_S = 30


@pytest.fixture
def refusing(server: Server) -> str:
    if not server.kbroker:
        requirements.skip_on_this_machine("Apache Kafka serves transactions")
    return server.bootstrap


def test_librdkafka_is_refused_for_good(refusing: str) -> None:
    config = {"bootstrap.servers": refusing, "transactional.id": TRANSACTIONAL_ID}
    producer = confluent_kafka.Producer(config)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(TIMEOUT_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert NO_TRANSACTIONS in error.str()


def test_kafka_python_is_refused_for_good(refusing: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=refusing,
        transactional_id=TRANSACTIONAL_ID,
        max_block_ms=1_000 * TIMEOUT_S,
    )
    try:
        with pytest.raises(kafka.errors.KafkaError, match="UnsupportedVersionError"):
            producer.init_transactions()
    finally:
        producer.close(0)


def test_aiokafka_is_refused_for_good(refusing: str) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=refusing, transactional_id=TRANSACTIONAL_ID
        )
        try:
            await asyncio.wait_for(producer.start(), TIMEOUT_S)
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError, match="UnsupportedVersionError"):
        asyncio.run(start())
