"""The processes that are measured: Apache Kafka, kbroker, the limit server, one shape for all."""

from perf.brokers.attached import AttachedBroker
from perf.brokers.base import Broker, BrokerError
from perf.brokers.kafka import KafkaBroker
from perf.brokers.kbroker import BASELINE, KbrokerBroker
from perf.brokers.limit import LimitBroker

KINDS: dict[str, type[Broker]] = {
    "limit": LimitBroker,
    "kafka": KafkaBroker,
    "kbroker": KbrokerBroker,
}

__all__ = [
    "BASELINE",
    "KINDS",
    "AttachedBroker",
    "Broker",
    "BrokerError",
    "KafkaBroker",
    "KbrokerBroker",
    "LimitBroker",
]
