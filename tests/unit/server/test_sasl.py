"""SASL as the configuration asks for it: mechanisms by listener, made again when it changes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.key import ConfigSource
from kbroker.errors import ConfigError
from kbroker.limits import SCRAM_ITERATIONS_MIN
from kbroker.metadata.controller.own_nodes import SASL, sasl_secret
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.peer.own_login import own_login
from kbroker.security.fake_credential import fake_credential
from kbroker.security.mechanism import AuthenticationError
from kbroker.security.plain import plain_token
from kbroker.security.scram import ScramMechanism
from kbroker.security.scram_messages import parse_server_first
from kbroker.security.scram_server import ScramServer
from kbroker.server.sasl import Sasl
from kbroker.server.sasl_listeners import uses_sasl, with_sasl
from tests.support.bearer_tokens import Signer, key_set

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KEY = "listener.name.out.plain.sasl.jaas.config"
SETTINGS = {
    "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0,ALSO://127.0.0.1:0",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT,ALSO:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.out.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    KEY: f"{PLAIN} user_alice=hers;",
}


def load(**more: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, [f"{k}={v}" for k, v in {**SETTINGS, **more}.items()])


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return EmbeddedStore.open(tmp_path)


def sasl_of(config: BrokerConfig, store: EmbeddedStore) -> Sasl:
    return Sasl(config, store, ClusterImage)


def lets_in(sasl: Sasl, name: str, password: str) -> bool:
    mechanism = sasl.mechanisms("OUT")["PLAIN"].make()
    try:
        mechanism.evaluate(plain_token(name, password))
    except AuthenticationError:
        return False
    return mechanism.login is not None


def test_each_listener_has_its_mechanisms(store: EmbeddedStore) -> None:
    config = load()
    sasl = sasl_of(config, store)
    assert list(sasl.mechanisms("OUT")) == ["PLAIN", "SCRAM-SHA-256"]
    assert list(sasl.mechanisms("ALSO")) == ["SCRAM-SHA-512"]
    assert list(sasl.mechanisms("IN")) == []
    assert isinstance(sasl.mechanisms("ALSO")["SCRAM-SHA-512"].make(), ScramServer)
    assert lets_in(sasl, "alice", "hers") and not lets_in(sasl, "alice", "his")
    assert [uses_sasl(config, name) for name in ("IN", "OUT", "ALSO")] == [False, True, True]


def test_logins_change_with_the_configuration(store: EmbeddedStore) -> None:
    before = load()
    sasl = sasl_of(before, store)
    under_way = sasl.mechanisms("OUT")["PLAIN"].make()
    changed, errors = before.with_layer(
        ConfigSource.DYNAMIC_BROKER_CONFIG, {KEY: f"{PLAIN} user_bob=his;"}, "test"
    )
    assert errors == []
    sasl.follow(before, changed)
    assert lets_in(sasl, "bob", "his") and not lets_in(sasl, "alice", "hers")
    under_way.evaluate(plain_token("alice", "hers"))
    assert under_way.login is not None


def test_a_login_module_of_others_is_no_value() -> None:
    text = "com.sun.security.auth.module.JndiLoginModule required;"
    with pytest.raises(ConfigError, match="JndiLoginModule"):
        load().with_values({KEY: text})


def test_the_secret_is_made_once(store: EmbeddedStore) -> None:
    sasl_of(load(), store)
    secret = sasl_secret(store)
    assert len(secret) == 64 and sasl_secret(store) == secret
    assert secret.decode() in store.get(SASL).data.decode()


def test_scram_that_is_switched_on_later_does_not_tell_which_names_there_are(
    store: EmbeddedStore,
) -> None:
    """The salt of a name that is not there follows from the secret, not from the name alone."""
    plain = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.out.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.also.plain.sasl.jaas.config": f"{PLAIN} user_a=b;",
    }
    before = load(**plain)
    sasl = sasl_of(before, store)
    sasl.follow(before, load())
    scram = sasl.mechanisms("ALSO")["SCRAM-SHA-512"].make()
    salt = parse_server_first(scram.evaluate(b"n,,n=mallory,r=abc")).salt
    iterations = SCRAM_ITERATIONS_MIN
    known, unknown = (
        fake_credential(ScramMechanism.SHA_512, secret, "mallory", iterations).salt
        for secret in (sasl_secret(store), b"")
    )
    assert salt == known != unknown


def test_a_text_that_nothing_reads_is_logged(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    sasl_of(load(**{"sasl.jaas.config": f"{PLAIN} user_a=secret;"}), store)
    assert "sasl.jaas.config is not used" in caplog.text and "secret" not in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_a_broker_that_cannot_log_in_does_not_start(store: EmbeddedStore) -> None:
    with pytest.raises(ConfigError, match="no mechanism of OUT"):
        sasl_of(load(**{"inter.broker.listener.name": "OUT"}), store)


def test_the_own_login() -> None:
    assert own_login(load()) is None
    more = {
        "inter.broker.listener.name": "OUT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        KEY: f"{PLAIN} username=b password=p user_b=p;",
    }
    found = own_login(load(**more))
    assert found is not None and (found.mechanism, found.name) == ("PLAIN", "b")


def test_without_such_a_listener_nothing_is_taken_out(store: EmbeddedStore) -> None:
    class Dynamic:
        config = BrokerConfig.load(None, {}, [])

    def dispatch(request: object) -> None:
        raise AssertionError

    nothing: Any = None
    dynamic: Any = Dynamic
    assert with_sasl(dispatch, nothing, nothing, nothing, dynamic, nothing) is dispatch


def test_bearer_tokens_without_tls_are_warned_of(
    store: EmbeddedStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_bytes(key_set(Signer()))
    settings = {
        "listener.name.out.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.out.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "kbroker.oauthbearer.allowed.urls": file.as_uri(),
    }
    sasl_of(load(**settings), store)
    assert "OUT takes bearer tokens without TLS" in caplog.text
