"""Logins of listeners and between brokers, out of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from kbroker.config.oauth_settings import ALLOWED_URLS, JWKS_URL, oauth_settings
from kbroker.config.sasl_logins import (
    LOGIN_FILE,
    Login,
    check_at_start,
    ignored_texts,
    login_between_brokers,
    login_module,
)
from kbroker.errors import ConfigError

LISTENERS = {
    "listeners": "IN://127.0.0.1:0,OUT.1://127.0.0.1:0",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT.1:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}
PLAIN_KEY = "listener.name.out.1.plain.sasl.jaas.config"
PLAIN_TEXT = f'{PLAIN_MODULE} required username="b" password="p" user_alice="hers";'


def load(**settings: str) -> BrokerConfig:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return of({PLAIN_KEY: PLAIN_TEXT, **named})


OAUTH = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
OAUTH_KEY = "listener.name.out.1.oauthbearer.sasl.jaas.config"
KEYS = {JWKS_URL: "https://h/keys", ALLOWED_URLS: "https://h/keys"}
UNSECURED = f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="a";'


def of(settings: dict[str, str]) -> BrokerConfig:
    merged = {**LISTENERS, **settings}
    return BrokerConfig.load(None, {}, [f"{key}={value}" for key, value in merged.items()])


def test_users_of_a_listener() -> None:
    config = load()
    security = config.security_of("OUT.1")
    module = login_module(security, "PLAIN")
    assert module is not None and module.users == {"alice": "hers"}
    assert login_module(security, "SCRAM-SHA-256") is None  # its users are not in a file
    assert security.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert login_between_brokers(config) is None
    assert ignored_texts(config) == []


def test_users_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(
        f"KafkaServer {{ {PLAIN_MODULE} required user_a=b; }};\n"
        f"out.1.KafkaServer {{ {PLAIN_MODULE} required user_c=d; }};\n"
    )
    module = login_module(of({LOGIN_FILE: str(file)}).security_of("OUT.1"), "PLAIN")
    assert module is not None and module.users == {"c": "d"}
    # Text of the configuration is stronger.
    config = of({LOGIN_FILE: str(file), PLAIN_KEY: PLAIN_TEXT})
    module = login_module(config.security_of("OUT.1"), "PLAIN")
    assert module is not None and module.users == {"alice": "hers"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "OUT.1 has PLAIN, and no user has a password"),
        ({"sasl.jaas.config": PLAIN_TEXT}, "no user has a password"),
        ({"listener.name.out.1.sasl.jaas.config": PLAIN_TEXT}, "no user has a password"),
        ({PLAIN_KEY: "x"}, "the login module 'x' is not known"),
        ({PLAIN_KEY: f"{PLAIN_MODULE} required"}, "lacks a ';'"),
        ({PLAIN_KEY: f"{SCRAM_MODULE} required;"}, "is no login module of PLAIN"),
        ({LOGIN_FILE: "/there/is/none"}, "cannot read /there/is/none"),
        (
            {
                PLAIN_KEY: PLAIN_TEXT,
                "listener.name.out.1.scram-sha-256.sasl.jaas.config": PLAIN_TEXT,
            },
            "no login module of SCRAM-SHA-256",
        ),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "none is served"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "no keys to check tokens by"),
        ({**OAUTH, JWKS_URL: "https://h/keys"}, "is not in kbroker.oauthbearer.allowed.urls"),
        ({**OAUTH, JWKS_URL: "https://h/k", ALLOWED_URLS: "https://h/ke"}, "is not in"),
        ({**OAUTH, JWKS_URL: "https://a:b@h/k", ALLOWED_URLS: "https://a:b@h/k"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "ftp://h/k", ALLOWED_URLS: "ftp://h/k"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "https:///k", ALLOWED_URLS: "https:///k"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "https://h:x/k", ALLOWED_URLS: "https://h:x/k"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "https://[h/k", ALLOWED_URLS: "https://[h/k"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "file:", ALLOWED_URLS: "file:"}, "is no URL"),
        ({**OAUTH, JWKS_URL: "file://h/k", ALLOWED_URLS: "file://h/k"}, "is no URL"),
        ({**OAUTH, OAUTH_KEY: f"{OAUTHBEARER_MODULE} required;"}, "no keys to check tokens by"),
    ],
)
def test_a_listener_that_cannot_let_anyone_in(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        check_at_start(of(settings).security_of("OUT.1"))
    assert "hers" not in str(raised.value)


def test_a_file_without_the_section(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"Client {{ {PLAIN_MODULE} required user_a=b; }};\n")
    with pytest.raises(ConfigError, match="no user has a password"):
        check_at_start(of({LOGIN_FILE: str(file)}).security_of("OUT.1"))
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        of({LOGIN_FILE: str(file)})


def test_texts_that_nothing_reads() -> None:
    config = of(
        {
            PLAIN_KEY: PLAIN_TEXT,
            "sasl.jaas.config": PLAIN_TEXT,
            "listener.name.out.1.sasl.jaas.config": PLAIN_TEXT,
            "listener.name.other.plain.sasl.jaas.config": PLAIN_TEXT,
        }
    )
    assert ignored_texts(config) == [
        "listener.name.other.plain.sasl.jaas.config",
        "listener.name.out.1.sasl.jaas.config",
        "sasl.jaas.config",
    ]


BETWEEN = {"inter.broker.listener.name": "OUT.1", PLAIN_KEY: PLAIN_TEXT}
SCRAM_KEY = "listener.name.out.1.scram-sha-512.sasl.jaas.config"


def test_the_login_between_brokers() -> None:
    plain = of({**BETWEEN, "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    assert login_between_brokers(plain) == Login("PLAIN", "b", "p")
    scram = of(
        {
            **BETWEEN,
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            SCRAM_KEY: f'{SCRAM_MODULE} required username="c" password="q";',
        }
    )
    assert login_between_brokers(scram) == Login("SCRAM-SHA-512", "c", "q")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "GSSAPI is no mechanism of OUT.1"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, "has no login there"),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                PLAIN_KEY: f'{PLAIN_MODULE} required username="b" user_b="p";',
            },
            "has no login there",
        ),
    ],
)
def test_a_broker_that_cannot_log_in(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        login_between_brokers(of({**BETWEEN, **settings}))


def test_keys_of_tokens() -> None:
    url = "listener.name.out.1.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    config = of({**OAUTH, **KEYS, "sasl.oauthbearer.expected.audience": "us"})
    check_at_start(config.security_of("OUT.1"))
    found = oauth_settings(config.security_of("OUT.1"), {})
    assert (found.url, found.audiences, found.issuer) == ("https://h/keys", ("us",), None)
    assert (found.subject, found.scope, found.skew_s) == ("sub", "scope", 30)
    config = of({**OAUTH, url: "file:/keys", ALLOWED_URLS: "https://h/keys,file:/keys"})
    assert oauth_settings(config.security_of("OUT.1"), {}).url == "file:/keys"


def test_the_extra_is_named_where_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the extra") as raised:
        check_at_start(of({**OAUTH, **KEYS}).security_of("OUT.1"))
    assert "pip install 'kbroker[security]'" in str(raised.value)


@pytest.mark.parametrize("keys", [{}, KEYS])
def test_tokens_that_are_not_signed_are_never_accepted(keys: dict[str, str]) -> None:
    security = of({**OAUTH, **keys, OAUTH_KEY: UNSECURED}).security_of("OUT.1")
    with pytest.raises(ConfigError, match="unsecuredLoginStringClaim_sub, by which any token"):
        check_at_start(security)
