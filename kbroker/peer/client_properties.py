"""Client properties as Apache Kafka has them, and how a client of ours comes in with them.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kbroker/issuer.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="hers";

With OAUTHBEARER the token is in a file, `sasl.oauthbearer.token.endpoint.url=file:/PATH`.

Place in the flow: `--command-config` reads a file of them, and the data source of Spark's jobs has
them as options. Providers of values (`config.providers`) are refused: a password must not be the
text that names it. Other properties mean nothing here and are left alone. Trouble is a ConfigError
that says in which place, and never what a password is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config.absent_features import PROVIDERS
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin
    from kbroker.security.client_tls import ClientTls

_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (_PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def login_of(place: str, settings: Mapping[str, str]) -> ClientLogin | None:
    """None: they ask for no login and no TLS. ConfigError: what they ask for is not served.
    `place`: where they are written, for messages."""
    if settings.get(PROVIDERS, "").strip():
        raise ConfigError(
            f"{place}: {PROVIDERS}={settings[PROVIDERS]}: Java classes do not run here",
            "leave it out and write the values themselves, in a file with the mode 0600",
        )
    protocol = settings.get(_PROTOCOL, _PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"{place}: {_PROTOCOL}={protocol} is no protocol", f"use {', '.join(_PROTOCOLS)}"
        )
    if protocol == _PLAINTEXT:
        return None
    from kbroker.security.client_login import ClientLogin

    login = _login(place, settings) if protocol.startswith("SASL") else ClientLogin()
    return login._replace(tls=tls_of(place, settings)) if protocol.endswith("SSL") else login


def tls_of(place: str, settings: Mapping[str, str]) -> ClientTls:
    """By the keys `ssl.*`, whatever the protocol is."""
    from kbroker.config.client_settings import ClientSettings
    from kbroker.security.client_tls import client_tls  # its ssl is not for the others

    return client_tls(ClientSettings(place, settings))


def _login(place: str, settings: Mapping[str, str]) -> ClientLogin:
    from kbroker.config.jaas import parse_login_module
    from kbroker.security.client_login import MECHANISMS, OAUTHBEARER, ClientLogin

    mechanism = settings.get(_MECHANISM, "GSSAPI")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{place}: {_MECHANISM}={mechanism} is not known", f"use {', '.join(MECHANISMS)}"
        )
    if mechanism == OAUTHBEARER:
        return ClientLogin(mechanism, token_file=_token_file(place, settings))
    if _JAAS not in settings:
        raise ConfigError(f"{place}: {_JAAS} is not set", "write user and password there")
    module = parse_login_module(f"{place}, {_JAAS}", settings[_JAAS])
    own = module.own_login
    if own is None:
        raise ConfigError(f"{place}: {_JAAS} has no username and password", "add both")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return ClientLogin(mechanism, *own, is_token=is_token)


def _token_file(place: str, settings: Mapping[str, str]) -> str:
    from urllib.parse import urlsplit

    from kbroker.config.oauth_settings import TOKEN_URL, path_of

    url = settings.get(TOKEN_URL, "")
    if urlsplit(url).scheme != "file" or not path_of(url):
        raise ConfigError(
            f"{place}: {TOKEN_URL} names no file, and tokens are asked of no server here",
            "write file:/PATH, of a file with a token",
        )
    return path_of(url)
