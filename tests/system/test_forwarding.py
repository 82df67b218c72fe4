"""Requests are forwarded to the controller while brokers change to another version of kbroker."""

from __future__ import annotations

import pytest

from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode
from kbroker.peer.address import Address
from kbroker.peer.link import open_link
from kbroker.protocol import messages
from kbroker.testing import Cluster
from kbroker.testing.cluster import ClusterBroker
from kbroker.types import ApiKey

TIMEOUT_MS = 20_000
# A broker of a version without envelopes: its registration has no version of them, it accepts none,
# and it forwards the body alone, with the client id of brokers.
EARLIER = """
import sys
from kbroker.handlers import envelope
envelope.VERSION = 2**15
from kbroker.metadata.controller import records
records._envelope_field = lambda broker: {}
from kbroker.testing.run import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ids of brokers that start as of the earlier version."""
    ids: set[int] = set()
    program = ClusterBroker.program

    def program_of(broker: ClusterBroker) -> list[str]:
        now = program(broker)
        return ["-c", EARLIER, *now[2:]] if broker.broker_id in ids else now

    monkeypatch.setattr(ClusterBroker, "program", program_of)
    return ids


def ask(broker: ClusterBroker, api: ApiKey, version: int, body: bytes) -> bytes:
    host, _, port = broker.bootstrap.rpartition(":")
    clock = SystemClock()
    link = open_link(Address(host, int(port)), "a client", TIMEOUT_MS, clock)
    try:
        deadline_ns = clock.monotonic_ns() + TIMEOUT_MS * 1_000_000
        link.send(api, version, body, deadline_ns)
        reader = link.receive(deadline_ns)
        return reader.raw(reader.left)
    finally:
        link.close()


def create(broker: ClusterBroker, name: str) -> ErrorCode:
    table = messages.create_topics
    topic = table.Topic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = table.Request(topics=[topic], timeout_ms=TIMEOUT_MS)
    answer = ask(broker, ApiKey.CREATE_TOPICS, 7, request.encode(7))
    return ErrorCode(table.Response.decode(answer, 7).topics[0].error_code)


def set_own(broker: ClusterBroker, value: str) -> ErrorCode:
    """A setting of this broker alone, which the controller stores for it."""
    table = messages.incremental_alter_configs
    config = table.AlterableConfig(name="log.retention.ms", config_operation=0, value=value)
    resource = table.AlterConfigsResource(
        resource_type=4, resource_name=str(broker.broker_id), configs=[config]
    )
    request = table.Request(resources=[resource], validate_only=False)
    answer = ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request.encode(1))
    return ErrorCode(table.Response.decode(answer, 1).responses[0].error_code)


def forwarded(broker: ClusterBroker) -> tuple[int, int]:
    """How many requests of others came to it, in envelopes and in the old way."""
    from_brokers = [
        seen.api for seen in broker.requests() if seen.client_id == "kbroker-between-brokers"
    ]
    return from_brokers.count(ApiKey.ENVELOPE), from_brokers.count(ApiKey.CREATE_TOPICS)


def ask_all(cluster: Cluster, step: str) -> None:
    for broker in cluster.brokers.values():
        assert create(broker, f"{step}-{broker.broker_id}") is ErrorCode.NONE, step
        assert set_own(broker, str(1_000_000 + broker.broker_id)) is ErrorCode.NONE, step


def restart(cluster: Cluster, broker: ClusterBroker) -> None:
    broker.stop()
    broker.start()
    cluster.heal()


def test_requests_are_forwarded_in_envelopes_once_the_controller_takes_them(
    earlier: set[int],
) -> None:
    """A rolling restart from the earlier version, and back to it."""
    earlier.update((1, 2, 3))
    with Cluster(3) as cluster:
        ask_all(cluster, "earlier")
        envelopes, others = forwarded(cluster.controller())
        assert (envelopes, others) == (0, 2)
        for node_id in (1, 2, 3):
            earlier.discard(node_id)
            restart(cluster, cluster.brokers[node_id])
            ask_all(cluster, f"newer-{node_id}")
        controller = cluster.controller()
        before = forwarded(controller)
        ask_all(cluster, "all-newer")
        envelopes, others = forwarded(controller)
        assert (envelopes - before[0], others - before[1]) == (4, 0)
        for node_id in (1, 2, 3):
            earlier.add(node_id)
            restart(cluster, cluster.brokers[node_id])
            ask_all(cluster, f"earlier-{node_id}")
        assert forwarded(cluster.controller())[0] == 0
