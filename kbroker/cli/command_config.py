"""`--command-config FILE`: TLS and login of a command, as Apache Kafka's tools read it.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kbroker/issuer.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="hers";

With OAUTHBEARER the token is in a file, `sasl.oauthbearer.token.endpoint.url=file:/PATH`.

Other keys of such a file mean nothing here and are left alone. Trouble is one line that names the
file, and never a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin
    from kbroker.security.client_tls import ClientTls

_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (_PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PEM: Final = "PEM"
_STORE_TYPES: Final = (_PEM, "PKCS12", "JKS")
_STORES: Final = (
    ("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password"),
    ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password"),
)


class _FileSettings:
    """Keys of a client's TLS, which a broker has too, with the same types and defaults."""

    def __init__(self, path: str, settings: Mapping[str, str]) -> None:
        self._path = path
        self._settings = settings

    def name_of(self, key: str) -> str:
        return f"{self._path}: {key}"

    def __getitem__(self, key: str) -> Any:
        from kbroker.config.definition import BROKER_KEYS
        from kbroker.config.key import InvalidValue, parse_value

        row, text = BROKER_KEYS[key], self._settings.get(key)
        if text is None or (not text and row.default is None):
            return row.default
        try:
            return parse_value(row, text)
        except InvalidValue as error:
            raise ConfigError(f"{self.name_of(key)} is not allowed", error.allowed) from None


def login_of_file(path: str) -> ClientLogin | None:
    """None: the file asks for no login and no TLS. ConfigError: what it asks for is not served."""
    from kbroker.config.sources import read_file
    from kbroker.security.client_login import ClientLogin

    settings = {name: setting.text.strip() for name, setting in read_file(path).items()}
    protocol = settings.get(_PROTOCOL, _PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"{path}: {_PROTOCOL}={protocol} is no protocol", f"use {', '.join(_PROTOCOLS)}"
        )
    if protocol == _PLAINTEXT:
        return None
    _warn(path, settings)
    login = _login(path, settings) if protocol.startswith("SASL") else ClientLogin()
    return login._replace(tls=_tls(path, settings)) if protocol.endswith("SSL") else login


def _warn(path: str, settings: Mapping[str, str]) -> None:
    """Of files with secrets that others can read: a line on standard error."""
    from kbroker.cli.output import say
    from kbroker.config.secret_files import file_of, is_secret, warning_of

    paths = [path] if any(settings[name] for name in settings if is_secret(name)) else []
    paths += [file for name in settings if (file := file_of(name, settings[name]))]
    if (warning := warning_of(paths)) is not None:
        say(f"warning: {warning}", err=True)


def _tls(path: str, settings: Mapping[str, str]) -> ClientTls:
    for kind, location, password in _STORES:
        stored = settings.get(kind, "JKS").upper()
        if settings.get(location) and stored not in _STORE_TYPES:
            raise ConfigError(
                f"{path}: {kind}={settings[kind]} is no type of store",
                f"use {', '.join(_STORE_TYPES)}",
            )
        if settings.get(password) and stored == _PEM:
            raise ConfigError(f"{path}: {password}: a PEM file has none", "leave it unset")
    from kbroker.security.client_tls import client_tls  # its ssl is not for the others

    return client_tls(_FileSettings(path, settings))


def _login(path: str, settings: Mapping[str, str]) -> ClientLogin:
    from kbroker.config.jaas import parse_login_module
    from kbroker.security.client_login import MECHANISMS, OAUTHBEARER, ClientLogin

    mechanism = settings.get(_MECHANISM, "GSSAPI")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{path}: {_MECHANISM}={mechanism} is not known", f"use {', '.join(MECHANISMS)}"
        )
    if mechanism == OAUTHBEARER:
        return ClientLogin(mechanism, token_file=_token_file(path, settings))
    if _JAAS not in settings:
        raise ConfigError(f"{path}: {_JAAS} is not set", "write user and password there")
    module = parse_login_module(f"{path}, {_JAAS}", settings[_JAAS])
    own = module.own_login
    if own is None:
        raise ConfigError(f"{path}: {_JAAS} has no username and password", "add both")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return ClientLogin(mechanism, *own, is_token=is_token)


def _token_file(path: str, settings: Mapping[str, str]) -> str:
    from urllib.parse import urlsplit

    from kbroker.config.oauth_settings import TOKEN_URL, path_of

    url = settings.get(TOKEN_URL, "")
    if urlsplit(url).scheme != "file" or not path_of(url):
        raise ConfigError(
            f"{path}: {TOKEN_URL} names no file, and tokens are asked of no server here",
            "write file:/PATH, of a file with a token",
        )
    return path_of(url)
