"""admin.listeners: what is an address, what is not, and what nothing means."""

from __future__ import annotations

import pytest

from kbroker.cli.start import build_config
from kbroker.cli.start_arguments import StartArguments
from kbroker.config import BrokerConfig
from kbroker.config.admin_listeners import AdminListener, parse_admin_listeners
from kbroker.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("http://127.0.0.1:9644", AdminListener("127.0.0.1", 9644)),
        ("http://127.0.0.1:9644/", AdminListener("127.0.0.1", 9644)),
        ("http://[::1]:0", AdminListener("::1", 0)),
        ("https://127.0.0.1:9644/", AdminListener("127.0.0.1", 9644, tls=True)),
        ("http://:9644", AdminListener("", 9644)),
        ("http://a-host.example:65535", AdminListener("a-host.example", 65535)),
    ],
)
def test_an_address(text: str, listener: AdminListener) -> None:
    assert parse_admin_listeners([text]) == (listener,)
    assert str(listener) == text.removesuffix("/")


@pytest.mark.parametrize(
    "text",
    [
        "HTTPS://h:1",
        "https:/h:1",
        "httpss://h:1",
        "h:1",
        "http://h",
        "http://h:",
        "http://h:x",
        "http://h:٣",
        "http://h:65536",
        "http://h:123456",
        "http://h/x:1",
        "http://u@h:1",
        "http://::1:9644",
        "PLAINTEXT://h:1",
    ],
)
def test_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"admin\.listeners"):
        parse_admin_listeners([text])


@pytest.mark.parametrize("texts", [[], ["none"], ["NONE"]])
def test_nowhere(texts: list[str]) -> None:
    assert parse_admin_listeners(texts) == ()


def test_none_is_alone() -> None:
    with pytest.raises(ConfigError, match="none"):
        parse_admin_listeners(["none", "http://h:1"])


def test_a_configuration_is_checked_when_it_is_loaded() -> None:
    with pytest.raises(ConfigError, match="ftp"):
        BrokerConfig.load(None, {}, ["admin.listeners=ftp://h:1"])
    by_default = BrokerConfig.load(None, {}, []).admin_listeners
    assert by_default == (AdminListener("127.0.0.1", 9644), AdminListener("::1", 9644))


def test_a_free_port_for_kafka_is_a_free_port_here() -> None:
    free = build_config(StartArguments(port=0)).admin_listeners
    assert {listener.port for listener in free} == {0}
    fixed = build_config(StartArguments(port=1234)).admin_listeners
    assert {listener.port for listener in fixed} == {9644}
    said = build_config(StartArguments(port=0, overrides=("admin.listeners=http://h:7",)))
    assert said.admin_listeners == (AdminListener("h", 7),)


STORE = ("ssl.keystore.type=PEM", "listener.name.admin.ssl.keystore.location=/admin.pem")


def https(*settings: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, ["admin.listeners=https://127.0.0.1:0", *settings])


def test_https_has_keys_of_a_listener() -> None:
    config = https(*STORE, "ssl.keystore.location=/listeners.pem", "ssl.client.auth=requested")
    security = config.security_of("ADMIN")
    assert security["ssl.keystore.location"] == "/admin.pem"
    assert (security.client_auth, security.uses_tls) == ("requested", True)
    assert config.with_tls == ["ADMIN"]
    assert BrokerConfig.load(None, {}, []).with_tls == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((), "admin.listeners: ADMIN speaks SSL and has no certificate"),
        ((*STORE, "listener.name.admin.ssl.enabled.protocols=TLSv1.1"), "cannot be served"),
        (
            (
                *STORE,
                "listeners=ADMIN://127.0.0.1:0",
                "listener.security.protocol.map=ADMIN:PLAINTEXT",
                "inter.broker.listener.name=ADMIN",
            ),
            "ADMIN is the name of admin.listeners with https",
        ),
    ],
)
def test_https_that_cannot_be_served(settings: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        https(*settings)


def test_a_listener_may_have_the_name_beside_http() -> None:
    settings = [
        "listeners=ADMIN://127.0.0.1:0",
        "listener.security.protocol.map=ADMIN:PLAINTEXT",
        "inter.broker.listener.name=ADMIN",
    ]
    assert BrokerConfig.load(None, {}, settings).security_of("ADMIN").key == "listeners"
