"""Listeners: what is bound, what is advertised, and what is refused with a reason."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig, Endpoint, Listener, SecurityProtocol
from kbroker.errors import ConfigError

PLAIN = SecurityProtocol.PLAINTEXT


def _load(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(overrides=overrides)


def test_default_is_both_loopbacks_under_one_name() -> None:
    listeners = _load().listeners
    assert listeners.listeners == (
        Listener("PLAINTEXT", PLAIN, "127.0.0.1", 9092),
        Listener("PLAINTEXT", PLAIN, "::1", 9092),
    )
    assert listeners.names == ("PLAINTEXT",)
    assert listeners.advertised == ()
    assert listeners.advertised_for("PLAINTEXT") is None
    assert listeners.inter_broker_name == "PLAINTEXT"


def test_names_hosts_and_wildcards() -> None:
    config = _load(
        "listeners=internal://0.0.0.0:9092,External://[::]:9093,any://:0",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,external:plaintext,any:PLAINTEXT",
        "inter.broker.listener.name=external",
        "advertised.listeners=INTERNAL://b1:9092,EXTERNAL://[2001:db8::1]:19093",
    )
    one, two, three = config.listeners.listeners
    assert (one.name, one.host, one.port, one.is_wildcard) == ("INTERNAL", "0.0.0.0", 9092, True)
    assert (two.name, two.host, two.is_ipv6, two.is_wildcard) == ("EXTERNAL", "::", True, True)
    assert (three.host, three.port, three.is_wildcard) == ("", 0, True)
    assert config.listeners.inter_broker_name == "EXTERNAL"
    assert config.listeners.advertised_for("EXTERNAL") == Endpoint("EXTERNAL", "2001:db8::1", 19093)
    assert str(config.listeners.advertised_for("EXTERNAL")) == "EXTERNAL://[2001:db8::1]:19093"
    assert config.listeners.advertised_for("ANY") is None


def test_controller_listeners_of_a_raft_file_stay_closed() -> None:
    config = _load(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    )
    assert config.listeners.names == ("PLAINTEXT",)
    assert [endpoint.name for endpoint in config.listeners.advertised] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    "value",
    [
        "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.2:9092",
        "PLAINTEXT://0.0.0.0:9092,PLAINTEXT://[::]:9092",
        "PLAINTEXT://127.0.0.1:0,PLAINTEXT://[::1]:0",
        "PLAINTEXT://h:1",
    ],
)
def test_allowed(value: str) -> None:
    assert _load(f"listeners={value}").listeners.names == ("PLAINTEXT",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["listeners="], "there is none"),
        (["listeners=9092"], "no listener"),
        (["listeners=PLAINTEXT://localhost"], "no listener"),
        (["listeners=PLAINTEXT://h:70000"], "too large"),
        (["listeners=PLAINTEXT://h:-1"], "no listener"),
        (["listeners=PLAINTEXT://::1:9092"], "no listener"),
        (["listeners=PLAINTEXT://[127.0.0.1]:9092"], "no IPv6 address"),
        (["listeners=PLAINTEXT://[]:9092"], "no IPv6 address"),
        (["listeners=FOO://h:1"], "what FOO speaks"),
        (["listeners=PLAINTEXT://h:1,PLAINTEXT://h:2"], "ports 1 and 2"),
        (["listeners=PLAINTEXT://0.0.0.0:1,PLAINTEXT://127.0.0.1:1"], "same address"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://[::1]:1"], "same address"),
        (["listeners=PLAINTEXT://h:0,plaintext://h:0"], "twice"),
        (["advertised.listeners=OTHER://h:1"], "no listener is named OTHER"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "no client can connect"),
        (["advertised.listeners=PLAINTEXT://a:1,PLAINTEXT://b:1"], "twice"),
        (["listener.security.protocol.map=A"], "no new pair"),
        (["listener.security.protocol.map=A:SSL,a:SSL"], "no new pair"),
        (["listener.security.protocol.map=A:TLS"], "no protocol"),
        (["inter.broker.listener.name=OTHER"], "no listener is named OTHER"),
        (["security.inter.broker.protocol=SSL"], "no listener speaks SSL"),
    ],
)
def test_refused_with_a_reason(settings: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        _load(*settings)
    assert caught.value.exit_code == 3
