"""Three client libraries with one interface, so that one test runs with all of them."""

from tests.clients.adapters.aio import AioKafka
from tests.clients.adapters.base import (
    BEGINNING,
    CODECS,
    END,
    TIMEOUT_S,
    Client,
    Consumer,
    Delivery,
    Headers,
    Producer,
    Received,
    Record,
    next_number,
)
from tests.clients.adapters.confluent import Admin, Confluent
from tests.clients.adapters.kafka_python import KafkaPython

CLIENTS: tuple[type[Client], ...] = (Confluent, KafkaPython, AioKafka)

__all__ = [
    "BEGINNING",
    "CLIENTS",
    "CODECS",
    "END",
    "TIMEOUT_S",
    "Admin",
    "AioKafka",
    "Client",
    "Confluent",
    "Consumer",
    "Delivery",
    "Headers",
    "KafkaPython",
    "Producer",
    "Received",
    "Record",
    "next_number",
]
