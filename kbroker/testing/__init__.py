"""kbroker in your tests: a real broker in half a second, with faults, a clock and a look inside.

    with kbroker.testing.Broker(topics={"orders": 3}) as b:
        producer = Producer({"bootstrap.servers": b.bootstrap})
        b.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", times=2)
        ...
        assert [r.value for r in b.records("orders")] == [b"one"]

`Broker` is in broker.py, `Cluster`, several of them, in cluster.py, the pytest fixtures in
plugin.py, `KafkaContainer` in container.py for tests that were written for testcontainers. Names
are imported when they are asked for: pytest loads the plugin, and with it this file, in every run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.testing.broker import Broker
    from kbroker.testing.cluster import Cluster, ClusterBroker
    from kbroker.testing.container import KafkaContainer
    from kbroker.testing.external import ExternalBroker
    from kbroker.testing.inspection import GroupSeen, RecordSeen
    from kbroker.testing.plain import PlainBroker
    from kbroker.testing.process import BrokerFailed
    from kbroker.types import ApiKey

_HOMES = {
    "ApiKey": "kbroker.types",
    "Broker": "kbroker.testing.broker",
    "BrokerFailed": "kbroker.testing.process",
    "Cluster": "kbroker.testing.cluster",
    "ClusterBroker": "kbroker.testing.cluster",
    "ExternalBroker": "kbroker.testing.external",
    "GroupSeen": "kbroker.testing.inspection",
    "KafkaContainer": "kbroker.testing.container",
    "PlainBroker": "kbroker.testing.plain",
    "RecordSeen": "kbroker.testing.inspection",
}

__all__ = [
    "ApiKey",
    "Broker",
    "BrokerFailed",
    "Cluster",
    "ClusterBroker",
    "ExternalBroker",
    "GroupSeen",
    "KafkaContainer",
    "PlainBroker",
    "RecordSeen",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
