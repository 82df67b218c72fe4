"""How a listener checks bearer tokens, and where the token of this broker is.

    sasl.oauthbearer.jwks.endpoint.url     https, http or file: the keys that sign tokens
    kbroker.oauthbearer.allowed.urls       the URLs that may be read at all; Apache Kafka has a
                                           system property for it, without the first word

Each key may have the prefix of a listener and mechanism. Options `ssl.*` of the login module are
for a server of keys with an authority of its own, as in Apache Kafka. Tokens that are not signed
are accepted nowhere: a broker without keys to check by does not start, nor one whose login module
has an option `unsecured...`, by which Apache Kafka takes any token.

Immutable values; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.config.listener_security import ListenerSecurity

OAUTHBEARER: Final = "OAUTHBEARER"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
ALLOWED_URLS: Final = "kbroker.oauthbearer.allowed.urls"
EXTRA_FIX: Final = "pip install 'kbroker[security]'"
_FILE: Final = "file"
_SCHEMES: Final = ("https", "http", _FILE)
_UNSECURED: Final = "unsecured"
_SSL: Final = "ssl."
_NAME: Final = "ssl.endpoint.identification.algorithm"


class TlsOptions(tuple[tuple[str, str], ...]):
    """Names and values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<TlsOptions>"  # there may be passwords among them


class OAuthSettings(NamedTuple):
    """Times in the unit of their names."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    subject: str
    scope: str
    audiences: tuple[str, ...]
    issuer: str | None
    skew_s: int
    # Options ssl.* of the login module, for the server of keys.
    tls: TlsOptions = TlsOptions()


def oauth_settings(security: ListenerSecurity, options: Mapping[str, str]) -> OAuthSettings:
    """`options`: of the login module. ConfigError: no token could be checked by these."""
    url = security.of_mechanism(OAUTHBEARER, JWKS_URL) or ""
    unsecured = sorted(name for name in options if name.startswith(_UNSECURED))
    if unsecured:
        raise ConfigError(
            f"the login module of {security.name} has {unsecured[0]}, by which any token is taken",
            f"remove {unsecured[0]}",
        )
    if not url:
        raise ConfigError(
            f"{security.name} has {OAUTHBEARER}, and no keys to check tokens by",
            f"set listener.name.{security.name.lower()}.oauthbearer.{JWKS_URL}",
        )
    check_url(security, JWKS_URL, url, _SCHEMES)
    _check_extra()

    def of(key: str) -> Any:
        return security.of_mechanism(OAUTHBEARER, key)

    return OAuthSettings(
        url,
        of("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        of("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        of("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        of("sasl.oauthbearer.sub.claim.name"),
        of("sasl.oauthbearer.scope.claim.name"),
        tuple(of("sasl.oauthbearer.expected.audience")),
        of("sasl.oauthbearer.expected.issuer"),
        of("sasl.oauthbearer.clock.skew.seconds"),
        _tls_options(options),
    )


def _tls_options(options: Mapping[str, str]) -> TlsOptions:
    """As Apache Kafka has them: the name in the certificate is checked, whatever they say."""
    return TlsOptions(
        sorted(each for each in options.items() if each[0].startswith(_SSL) and each[0] != _NAME)
    )


def token_file(security: ListenerSecurity) -> str:
    """The file of this broker's own token, for its logins at others. ConfigError: there is none."""
    url = security.of_mechanism(OAUTHBEARER, TOKEN_URL) or ""
    if not url:
        raise ConfigError(
            f"brokers authenticate on {security.name} with {OAUTHBEARER}, and there is no token",
            f"set listener.name.{security.name.lower()}.oauthbearer.{TOKEN_URL} to file:/PATH",
        )
    check_url(security, TOKEN_URL, url, (_FILE,))
    return path_of(url)


def path_of(url: str) -> str:
    """Of a URL of a file."""
    from urllib.parse import unquote

    return unquote(urlsplit(url).path)


def check_url(security: ListenerSecurity, key: str, url: str, schemes: tuple[str, ...]) -> None:
    """ConfigError: it is none of these schemes, or not allowed."""
    allowed = security[ALLOWED_URLS]
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_one = urlsplit(""), False
    is_place = bool(parts.hostname)
    if parts.scheme == _FILE:  # of this machine
        is_place = bool(parts.path) and parts.netloc in ("", "localhost")
    if parts.scheme not in schemes or not is_place or not port_is_one or "@" in parts.netloc:
        raise ConfigError(
            f"{key} of {security.name} is no URL with {', '.join(schemes)}",
            "write https://HOST/PATH or file:/PATH" if len(schemes) > 1 else "write file:/PATH",
        )
    if url not in allowed:
        raise ConfigError(
            f"{key} of {security.name}: {url} is not in {ALLOWED_URLS}",
            f"add it there, as with Apache Kafka's {_KAFKAS}",
        )


_KAFKAS: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


def _check_extra() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise ConfigError(
            f"{OAUTHBEARER} needs the extra [security], which is not there", EXTRA_FIX
        )
