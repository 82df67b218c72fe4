"""What `kbroker doctor` says of certificates: how long they are valid.

It looks at the stores that the settings name, as the broker would read them, now. Nothing is
imported for it where no listener speaks TLS; `findings/certificates.py` has the judgement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.clock import Clock
from kbroker.errors import ConfigError
from kbroker.findings.certificates import RENEW, expiry
from kbroker.findings.checks import FAILING, OK, Check

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity


def certificates(config: BrokerConfig, clock: Clock) -> Iterator[Check]:
    """One line for each listener with TLS, the admin port among them, and one for the library."""
    for name in config.with_tls:
        yield certificate(config.security_of(name), clock.wall_ms() / 1000)
    if config.with_tls:
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
        return Check(FAILING, "tls", f"{security.name}: its certificate: {error}", RENEW)
    if lapse:
        return Check(FAILING, "tls", f"{seen} {lapse}", RENEW)
    return expiry("tls", seen, context.not_after - now_s)
