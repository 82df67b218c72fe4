"""The address that a client gets: the configured one, else the one that it reached."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.metadata.image import BrokerEndpoint
from kbroker.server.advertised import Advertised


def _advertised(*overrides: str) -> Advertised:
    return Advertised(BrokerConfig.load(overrides=list(overrides)).listeners)


def _request(host: str, port: int) -> Any:
    return SimpleNamespace(listener="PLAINTEXT", local_host=host, local_port=port)


def test_without_configuration_a_client_gets_the_address_that_it_reached() -> None:
    advertised = _advertised()
    assert advertised(_request("127.0.0.1", 9092)) == ("127.0.0.1", 9092)
    assert advertised(_request("::1", 9092)) == ("::1", 9092)


def test_a_configured_address_wins() -> None:
    advertised = _advertised("advertised.listeners=PLAINTEXT://kafka.example:1234")
    assert advertised(_request("127.0.0.1", 9092)) == ("kafka.example", 1234)
    found = advertised.registered({"PLAINTEXT": [("127.0.0.1", 9092)]})
    assert found == (BrokerEndpoint("PLAINTEXT", "kafka.example", 1234),)


def test_a_wildcard_is_registered_under_this_hosts_name() -> None:
    advertised = _advertised("listeners=PLAINTEXT://0.0.0.0:9092")
    name = socket.gethostname()
    for bound, registered in (("0.0.0.0", name), ("10.0.0.7", "10.0.0.7")):
        (found,) = advertised.registered({"PLAINTEXT": [(bound, 9092)]})
        assert found == BrokerEndpoint("PLAINTEXT", registered, 9092)


def test_every_listener_is_registered_and_that_of_brokers_is_first() -> None:
    advertised = _advertised(
        "listeners=OUT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map=OUT:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name=INSIDE",
        "advertised.listeners=OUT://kafka.example:1234,INSIDE://10.0.0.7:5",
    )
    config = BrokerConfig.load(overrides=["node.id=7", "broker.rack=r"])
    bound = {"OUT": [("127.0.0.1", 1)], "INSIDE": [("127.0.0.1", 2)]}
    broker = advertised.broker(config, bound, lossy=False)
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (7, "10.0.0.7", 5, "r")
    assert broker.address_on("OUT") == ("kafka.example", 1234)
    assert broker.address_on("INSIDE") == ("10.0.0.7", 5)
    assert broker.address_on("ELSE") is None


def test_the_addresses_of_each_listener_for_c() -> None:
    advertised = _advertised(
        "listeners=A://:9092,B://:9093",
        "advertised.listeners=B://kafka.example:1234",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name=A",
    )
    assert advertised.by_listener(["A", "B"]) == [None, ("kafka.example", 1234)]
