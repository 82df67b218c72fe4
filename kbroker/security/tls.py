"""TLS of a listener: the context made of its settings and stores.

Place in the flow: `server/tls_listeners.py` asks for the context of each listener that needs TLS,
when it opens and when its files or settings have changed. Imported only then; libssl is bound by
the first context.

Whatever cannot be served is a ConfigError that names the key. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.config.cipher_suites import SIGNAL, TLS_1_2_SUITES, TLS_1_3_SUITES
from kbroker.errors import ConfigError
from kbroker.net._openssl import LIBRARY_PATH
from kbroker.net._tls_context import TlsContext
from kbroker.security.principal_rules import PrincipalRules
from kbroker.security.stores import CHAIN, KEY_FILE, PASSWORD, TRUST_FILE, TRUSTED, Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbroker.config.listener_security import ListenerSecurity

_RULES: Final = "ssl.principal.mapping.rules"
_SUITES: Final = "ssl.cipher.suites"


def tls_context(security: ListenerSecurity, stores: Stores) -> TlsContext:
    """The context for a listener's connections; it may be the first use of libssl."""
    context = TlsContext(security[LIBRARY_PATH] or "")
    versions: Sequence[str] = security["ssl.enabled.protocols"]
    if security[_SUITES]:
        versions = _use_suites(context, security, versions)
    context.use_versions(versions)
    chain_key = KEY_FILE if security[CHAIN] is None else CHAIN
    _refusing(security, chain_key, lambda: context.use_certificates(stores.chain))
    _refusing(security, PASSWORD, lambda: context.use_key(stores.key, stores.password))
    trust_key = TRUST_FILE if security[TRUSTED] is None else TRUSTED
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


def _refusing(security: ListenerSecurity, key: str, step: Callable[[], None]) -> None:
    try:
        step()
    except ValueError as error:
        raise ConfigError(f"{security.name_of(key)}: {error}") from None
