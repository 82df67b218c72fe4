"""TLS of a listener: its stores, read from files or settings, and the context made of them.

Place in the flow: `server/tls_listeners.py` asks for the context of each listener that needs TLS,
when it opens and when its files or settings have changed. Imported only then; libssl is bound by
the first context.

Whatever cannot be served is a ConfigError that names the key. Any thread; files are read at once
and not kept open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.cipher_suites import SIGNAL, TLS_1_2_SUITES, TLS_1_3_SUITES
from kbroker.errors import ConfigError
from kbroker.net._openssl import LIBRARY_PATH
from kbroker.net._tls_context import TlsContext
from kbroker.security.pem import PEM_BYTES_MAX, certificates_of, private_key_of
from kbroker.security.principal_rules import PrincipalRules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbroker.config.listener_security import ListenerSecurity

_KEY_FILE: Final = "ssl.keystore.location"
_KEY: Final = "ssl.keystore.key"
_CHAIN: Final = "ssl.keystore.certificate.chain"
_PASSWORD: Final = "ssl.key.password"
_TRUST_FILE: Final = "ssl.truststore.location"
_TRUSTED: Final = "ssl.truststore.certificates"
_RULES: Final = "ssl.principal.mapping.rules"
_SUITES: Final = "ssl.cipher.suites"
_FIX_STORE: Final = "write it as PEM: the private key as PKCS#8, then its certificates"
FILES: Final = (_KEY_FILE, _TRUST_FILE)


class Stores(NamedTuple):
    """In PEM as OpenSSL reads it. `trusted` None: what this machine trusts."""

    key: bytes
    chain: bytes
    password: bytes
    trusted: bytes | None

    def __repr__(self) -> str:
        return "<Stores>"  # the key is not for a log


def read_stores(security: ListenerSecurity) -> Stores:
    """The stores of a listener as they are now."""
    key_from, chain_from = (_KEY_FILE, _KEY_FILE) if security[_KEY] is None else (_KEY, _CHAIN)
    trusted = None
    for each in (_TRUSTED, _TRUST_FILE):
        if security[each] is not None:
            trusted = _of_store(security, each, certificates_of)
    return Stores(
        _of_store(security, key_from, private_key_of),
        _of_store(security, chain_from, certificates_of),
        (security[_PASSWORD] or "").encode(),
        trusted,
    )


def tls_context(security: ListenerSecurity, stores: Stores) -> TlsContext:
    """The context for a listener's connections; it may be the first use of libssl."""
    context = TlsContext(security[LIBRARY_PATH] or "")
    versions: Sequence[str] = security["ssl.enabled.protocols"]
    if security[_SUITES]:
        versions = _use_suites(context, security, versions)
    context.use_versions(versions)
    chain_key = _KEY_FILE if security[_CHAIN] is None else _CHAIN
    _refusing(security, chain_key, lambda: context.use_certificates(stores.chain))
    _refusing(security, _PASSWORD, lambda: context.use_key(stores.key, stores.password))
    trust_key = _TRUST_FILE if security[_TRUSTED] is None else _TRUSTED
    _refusing(
        security, trust_key, lambda: context.verify_clients(security.client_auth, stores.trusted)
    )
    return context


def principal_rules(security: ListenerSecurity) -> PrincipalRules:
    """How the names of its clients' certificates become those of users."""
    try:
        return PrincipalRules(security[_RULES])
    except ValueError as error:
        raise ConfigError(
            f"{security.name_of(_RULES)}: {error}",
            "write DEFAULT, or RULE:pattern/replacement/ with L or U after it",
        ) from None


def _use_suites(
    context: TlsContext, security: ListenerSecurity, versions: Sequence[str]
) -> list[str]:
    """The versions that have a suite left."""
    wanted = [name for name in security[_SUITES] if name != SIGNAL]
    of_1_2 = [TLS_1_2_SUITES[name] for name in wanted if name in TLS_1_2_SUITES]
    of_1_3 = [name for name in wanted if name in TLS_1_3_SUITES]
    _refusing(security, _SUITES, lambda: context.use_suites(of_1_2, of_1_3))
    suites = {"TLSv1.2": of_1_2, "TLSv1.3": of_1_3}
    left = [version for version in versions if suites[version]]
    if not left:
        raise ConfigError(
            f"{security.name_of(_SUITES)}: none of them is of {', '.join(versions)}",
            "add one that is, or a version to ssl.enabled.protocols",
        )
    return left


def _of_store(security: ListenerSecurity, key: str, part_of: Callable[[bytes], bytes]) -> bytes:
    name = security.name_of(key)
    if key in FILES:
        text, place = _read_file(name, security[key]), f"{name}={security[key]}"
    else:
        text, place = security[key].encode(), name
    try:
        return part_of(text)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", _FIX_STORE) from None


def _read_file(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{name}={path} cannot be read: {error.strerror}",
            "name a file that the broker's user may read",
        ) from None


def _refusing(security: ListenerSecurity, key: str, step: Callable[[], None]) -> None:
    try:
        step()
    except ValueError as error:
        raise ConfigError(f"{security.name_of(key)}: {error}") from None
