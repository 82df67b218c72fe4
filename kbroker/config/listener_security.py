"""What a listener says about its security: its own keys over those of all listeners.

Place in the flow: `BrokerConfig.security_of` makes one for each listener and checks it when the
configuration is read, so also before a setting at run time is taken; TLS and SASL read their keys
from it. `listener.name.NAME.KEY` is stronger than KEY, the name in small letters; SASL reads
`listener.name.NAME.MECHANISM.KEY` before both.

Where Apache Kafka has rules of its own: a `ssl.client.auth` without a listener's prefix does not
apply to SASL_SSL, where the certificate is not who the client is.

Immutable, a view of an immutable configuration; any thread. No value of a password is in a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.config.definition import LISTENER_PREFIX
from kbroker.config.listeners import SecurityProtocol
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

CLIENT_AUTH: Final = "ssl.client.auth"
MECHANISMS: Final = "sasl.enabled.mechanisms"
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
PEM: Final = "PEM"

_TLS: Final = frozenset({SecurityProtocol.SSL, SecurityProtocol.SASL_SSL})
_SASL: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})
_SERVED_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_GSSAPI: Final = "GSSAPI"
_JAVA_STORES: Final = frozenset({"JKS", "PKCS12"})


class ListenerSecurity:
    """The security settings of one listener; `name` in capitals."""

    __slots__ = ("_config", "_prefix", "key", "name", "protocol")

    def __init__(
        self,
        config: BrokerConfig,
        name: str,
        protocol: SecurityProtocol,
        key: str = "listeners",
    ) -> None:
        """`key`: where the listener itself is written."""
        self._config: Final = config
        self._prefix: Final = f"{LISTENER_PREFIX}{name.lower()}."
        self.key: Final = key
        self.name: Final = name
        self.protocol: Final = protocol

    @property
    def uses_tls(self) -> bool:
        return self.protocol in _TLS

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in _SASL

    def name_of(self, key: str) -> str:
        """The name under which this listener's value of `key` is set: for messages."""
        return self._prefix + key if self.is_own(key) else key

    def is_own(self, key: str) -> bool:
        """Whether `key` is set with this listener's prefix."""
        return self._prefix + key in self._config

    def __getitem__(self, key: str) -> Any:
        """The typed value of `key`, a broker key, for this listener."""
        return self._config[self.name_of(key)]

    def is_of_mechanism(self, mechanism: str, key: str) -> bool:
        """Whether `key` is set with the prefix of this listener and of a SASL mechanism."""
        return self._of_mechanism(mechanism, key) in self._config

    def of_mechanism(self, mechanism: str, key: str) -> Any:
        """The value of `key` for one SASL mechanism of this listener."""
        name = self._of_mechanism(mechanism, key)
        return self._config[name] if name in self._config else self[key]

    def _of_mechanism(self, mechanism: str, key: str) -> str:
        return f"{self._prefix}{mechanism.lower()}.{key}"

    @property
    def client_auth(self) -> str:
        """ssl.client.auth as it applies: none, requested or required."""
        if self.protocol is SecurityProtocol.SASL_SSL and not self.is_own(CLIENT_AUTH):
            return "none"
        auth: str = self[CLIENT_AUTH]
        return auth

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that clients of this listener may use, of those that are served."""
        return tuple(each for each in self[MECHANISMS] if each in _SERVED_MECHANISMS)


def check_listener_security(security: ListenerSecurity) -> None:
    """Raises ConfigError for settings that cannot be served as they are written."""
    if security.uses_tls:
        _check_versions(security)
        _check_suites(security)
        _check_key_store(security)
        _check_trust_store(security)
    if security.uses_sasl:
        from kbroker.config.sasl_logins import check_logins  # not where there is only TLS

        _check_mechanisms(security)
        check_logins(security)


def _check_versions(security: ListenerSecurity) -> None:
    key = "ssl.enabled.protocols"
    old = [each for each in security[key] if each not in TLS_VERSIONS]
    if old or not security[key]:
        named = f"{', '.join(old)} cannot be served" if old else "there is none"
        raise ConfigError(f"{security.name_of(key)}: {named}", f"use {', '.join(TLS_VERSIONS)}")


def _check_suites(security: ListenerSecurity) -> None:
    key = "ssl.cipher.suites"
    if not security[key]:
        return
    from kbroker.config.cipher_suites import unknown_suite

    unknown = unknown_suite(security[key])
    if unknown is not None:
        raise ConfigError(
            f"{security.name_of(key)}: {unknown!r} is no cipher suite of TLS 1.2 or 1.3",
            "use IANA's names, such as TLS_AES_128_GCM_SHA256, or leave it unset",
        )


def _check_key_store(security: ListenerSecurity) -> None:
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    location = "ssl.keystore.location"
    inline = [each for each in (key, chain) if security[each] is not None]
    if len(inline) == 1:
        missing = chain if inline == [key] else key
        raise ConfigError(
            f"{security.name_of(inline[0])} is set and {missing} is not", f"set {missing}, too"
        )
    if not inline and security[location] is None:
        spoken = f"{security.name} speaks {security.protocol.value}"
        raise ConfigError(
            f"{security.key}: {spoken} and has no certificate",
            f"set {location} to a file with key and certificates, and ssl.keystore.type",
        )
    _check_store(security, "ssl.keystore.type", location, key if inline else None)
    _check_password(
        security, "ssl.keystore.type", "ssl.keystore.password",
        "set ssl.key.password if the key in it is encrypted",
    )  # fmt: skip


def _check_trust_store(security: ListenerSecurity) -> None:
    certificates, location = "ssl.truststore.certificates", "ssl.truststore.location"
    inline = certificates if security[certificates] is not None else None
    if inline or security[location] is not None:
        _check_store(security, "ssl.truststore.type", location, inline)
        _check_password(
            security, "ssl.truststore.type", "ssl.truststore.password", "leave it unset"
        )
    elif security["ssl.truststore.password"] is not None:
        raise ConfigError(
            f"{security.name_of('ssl.truststore.password')} is set, and there is no trust store",
            f"set {location}, too",
        )


def _check_password(security: ListenerSecurity, kind: str, password: str, fix: str) -> None:
    if security[kind] == PEM and security[password] is not None:
        raise ConfigError(
            f"{security.name_of(password)}: a PEM file has no password of its own", fix
        )


def _check_store(security: ListenerSecurity, kind: str, location: str, inline: str | None) -> None:
    """The type of a store, which is in a file or in the setting `inline` itself."""
    if inline is not None and security[location] is not None:
        raise ConfigError(
            f"{security.name_of(location)} and {security.name_of(inline)} are both set",
            "set one of them",
        )
    if security[kind] == PEM:
        return
    if security[kind].upper() not in _JAVA_STORES:
        raise ConfigError(
            f"{security.name_of(kind)}={security[kind]} is no type of store",
            "use PEM, PKCS12 or JKS",
        )
    if inline is not None:
        raise ConfigError(
            f"{security.name_of(inline)} is set, and {security.name_of(kind)}={security[kind]}",
            f"set {security.name_of(kind)}=PEM, since a setting holds PEM only",
        )


def _check_mechanisms(security: ListenerSecurity) -> None:
    if security.mechanisms:
        return
    name = security.name_of(MECHANISMS)
    named = ", ".join(security[MECHANISMS]) or "none"
    kerberos = " (Kerberos)" if security[MECHANISMS] == (_GSSAPI,) else ""
    raise ConfigError(
        f"{name}: {security.name} speaks {security.protocol.value}, and of its mechanisms"
        f" ({named}) none is served{kerberos}",
        f"set it to some of {', '.join(_SERVED_MECHANISMS)}",
    )
