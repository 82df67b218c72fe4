"""What `kbroker doctor` says about TLS: the library, and the certificate of each listener.

As the broker would read them: the stores that the settings name, now. Nothing is imported for it
where no listener speaks TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kbroker.cli.checks import FAILING, OK, WARNING, Check
from kbroker.clock import Clock
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity

EXPIRES_SOON_S: Final = 14 * 86_400
_DAY_S: Final = 86_400
_FIX: Final = "issue another one and replace the file; a broker that runs sees it by itself"


def certificates(config: BrokerConfig, clock: Clock) -> Iterator[Check]:
    """One line for each listener with TLS, and one for the library."""
    found = [config.security_of(name) for name in config.listeners.names]
    with_tls = [security for security in found if security.uses_tls]
    for security in with_tls:
        yield certificate(security, clock.wall_ms() / 1000)
    if with_tls:
        from kbroker.net._openssl import loaded_version

        version = loaded_version()
        if version is not None:
            yield Check(OK, "tls", f"by {version}")


def certificate(security: ListenerSecurity, now_s: float) -> Check:
    from kbroker.security.distinguished_name import name_of
    from kbroker.security.stores import read_stores
    from kbroker.security.tls import tls_context
    from kbroker.security.tls_changes import lapse_of

    try:
        context = tls_context(security, read_stores(security))
        seen = f"{security.name}: the certificate of {name_of(context.subject)}"
        lapse = lapse_of(context, now_s)
    except ConfigError as error:
        return Check(FAILING, "tls", error.cause, error.fix)
    except ValueError as error:
        return Check(FAILING, "tls", f"{security.name}: its certificate: {error}", _FIX)
    if lapse:
        return Check(FAILING, "tls", f"{seen} {lapse}", _FIX)
    left_s = context.not_after - now_s
    verdict = WARNING if left_s < EXPIRES_SOON_S else OK
    fix = _FIX if verdict == WARNING else ""
    return Check(verdict, "tls", f"{seen} expires in {int(left_s // _DAY_S)} days", fix)
