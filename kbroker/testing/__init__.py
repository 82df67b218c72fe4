"""Brokers for tests. `Broker` is one kbroker in a process of its own; see broker.py."""

from kbroker.testing.broker import Broker
from kbroker.testing.process import BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
