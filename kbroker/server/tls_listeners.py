"""The listeners with TLS: their transports, what their clients fail at, and their certificates.

Place in the flow: `listen_all` asks for a transport when it binds a listener that needs one; only
then is anything of TLS imported, and libssl mapped. From then on the scheduler calls `tell`, which
writes a line for each kind of connection that has failed in TLS, since the network threads cannot.

`transport_of` on the thread that starts the broker, the rest on the scheduler's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker import limits

if TYPE_CHECKING:
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.net._tls_transport import TlsTransport
    from kbroker.scheduler import Scheduler
    from kbroker.security.certificate_principals import Dispatch
    from kbroker.security.principal_rules import PrincipalRules

logger: Final = logging.getLogger("kbroker.network")

_NO_TLS: Final = "the client does not speak TLS -> set its security.protocol to {protocol}"
_NO_TRUST: Final = (
    "the client does not accept the broker's certificate -> have it trust the issuer, and connect"
    " by a name that is in the certificate"
)
_NO_VERSION: Final = "the client has no version of TLS that is in ssl.enabled.protocols"
_NO_SUITE: Final = "the client has no cipher suite of ours -> see ssl.cipher.suites"
_NO_CERTIFICATE: Final = (
    "the client sent no certificate -> give it one, or set ssl.client.auth to requested"
)
# OpenSSL's words for a reason, and the likely cause.
_CAUSES: Final = {
    "wrong version number": _NO_TLS,
    "http request": _NO_TLS,
    "https proxy request": _NO_TLS,
    "unknown protocol": _NO_TLS,
    "bad record type": _NO_TLS,
    "unsupported protocol": _NO_VERSION,
    "version too low": _NO_VERSION,
    "tlsv1 alert protocol version": _NO_VERSION,
    "no shared cipher": _NO_SUITE,
    "no suitable signature algorithm": _NO_SUITE,
    "peer did not return a certificate": _NO_CERTIFICATE,
    "tlsv1 alert unknown ca": _NO_TRUST,
    "sslv3 alert certificate unknown": _NO_TRUST,
    "ssl/tls alert certificate unknown": _NO_TRUST,
    "sslv3 alert bad certificate": _NO_TRUST,
    "ssl/tls alert bad certificate": _NO_TRUST,
    "sslv3 alert certificate expired": "the client finds the broker's certificate expired",
    "ssl/tls alert certificate expired": "the client finds the broker's certificate expired",
}


class TlsListeners:
    """See the head of this file."""

    def __init__(self) -> None:
        self._transports: dict[str, tuple[TlsTransport, ListenerSecurity]] = {}
        self._rules: dict[str, PrincipalRules] = {}

    def transport_of(self, security: ListenerSecurity) -> TlsTransport:
        """For a listener that opens; ConfigError if its settings or files do not do."""
        from kbroker.net._openssl import loaded_version
        from kbroker.net._tls_transport import TlsTransport
        from kbroker.security.tls import principal_rules, read_stores, tls_context

        first = not self._transports
        transport = TlsTransport(tls_context(security, read_stores(security)))
        self._transports[security.name] = transport, security
        self._rules[security.name] = principal_rules(security)
        if first:
            logger.info("TLS by %s", loaded_version())
        return transport

    def before(self, dispatch: Dispatch) -> Dispatch:
        """What handlers call, with the certificates of clients taken out; after the listeners have
        been bound."""
        if not self._transports:
            return dispatch
        from kbroker.security.certificate_principals import CertificatePrincipals

        return CertificatePrincipals(self._rules).before(dispatch)

    def schedule(self, scheduler: Scheduler) -> None:
        """After the listeners have been bound."""
        if self._transports:
            scheduler.schedule("TLS", self.tell, limits.LOG_LINE_PERIOD_MS)

    def tell(self) -> None:
        """A line for each kind of failure since the last call."""
        from kbroker.net._tls_transport import ENDED

        for name, (transport, security) in self._transports.items():
            for reason, verify, count, host in transport.take_failures():
                level = logging.DEBUG if reason == ENDED else logging.INFO
                why = f"{reason} ({verify})" if verify else reason
                cause = _CAUSES.get(reason, "").format(protocol=security.protocol.value)
                logger.log(
                    level,
                    "%s: TLS failed for %d connection%s, the last one from %s: %s%s",
                    name,
                    count,
                    "s"[: count != 1],
                    host,
                    why,
                    f": {cause}" if cause else "",
                )
