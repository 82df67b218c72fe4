"""The listeners with TLS: their transports and certificates, and what their clients fail at.

The admin port, where it speaks https, is one of them, by the name ADMIN, with a context of Python's
ssl in place of a transport.

Place in the flow: `listen_all` asks for a transport when it binds a listener that needs one; only
then is anything of TLS imported, and libssl mapped. From then on the scheduler calls `tell`, which
writes a line for each kind of connection that has failed in TLS, since the network threads cannot,
and `look`, which serves the certificates of files that were replaced. A change of settings is
judged before it is stored (`judge`) and then followed (`follow`).

Connections keep the certificate with which they began. What cannot be served is a line in the log,
and the listener keeps the certificate in use. One that expires soon is a line, and again once it
has expired.

`transport_of` on the thread that starts the broker; `judge` and `follow` on the controller's, the
rest on the scheduler's. The lock is held while the served certificates change, and while
files are read.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Protocol

from kbroker import limits
from kbroker.clock import Clock, SystemClock
from kbroker.config.admin_listeners import ADMIN_LISTENERS
from kbroker.errors import ConfigError, InvariantError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.net._tls_transport import TlsTransport
    from kbroker.scheduler import Scheduler
    from kbroker.security.certificate_principals import Dispatch
    from kbroker.security.principal_rules import PrincipalRules
    from kbroker.security.tls_changes import Served

logger: Final = logging.getLogger("kbroker.network")

# Looks after which contents are read.
LOOKS_UNREAD: Final = 6
# Before a certificate expires.
EXPIRES_SOON_S: Final = 14 * 86_400
_DAY_S: Final = 86_400

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


class Dynamic(Protocol):
    """Has the configuration as it holds now."""

    @property
    def config(self) -> BrokerConfig: ...


class TlsListeners:
    """See the head of this file."""

    def __init__(self, dynamic: Dynamic, clock: Clock | None = None) -> None:
        self._dynamic = dynamic
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._transports: dict[str, TlsTransport] = {}
        self._served: dict[str, Served] = {}
        self._of_admin: SSLContext | None = None
        self._rules: dict[str, PrincipalRules] = {}
        self._refused: dict[str, str] = {}  # why a change is not served, as the log has it
        self._lapses: dict[str, str] = {}  # what the log has of a certificate's time
        self._looks = 0
        self._scheduler: Scheduler | None = None

    def transport_of(self, security: ListenerSecurity) -> TlsTransport:
        """For a listener that opens; ConfigError if its settings or files do not do."""
        from kbroker.net._tls_transport import TlsTransport
        from kbroker.security.tls import principal_rules

        name, served = security.name, self._serve(security)
        self._transports[name] = transport = TlsTransport(served.context)
        self._rules[name] = principal_rules(security)
        return transport

    def open_admin(self, security: ListenerSecurity) -> None:
        """For https on the admin port; ConfigError as with `transport_of`."""
        from kbroker.security.server_tls import server_context

        self._of_admin = server_context(security, self._serve(security).stores)

    def admin_context(self) -> SSLContext:
        """For the next connection of the admin port. Any thread."""
        if self._of_admin is None:
            raise InvariantError("the admin port does not speak TLS")
        return self._of_admin

    def _serve(self, security: ListenerSecurity) -> Served:
        from kbroker.net._openssl import loaded_version
        from kbroker.security.tls_changes import serve

        first = not self._served
        self._served[security.name] = served = serve(security)
        if first:
            logger.info("TLS by %s", loaded_version())
        self._tell_of_time(security.name, served)
        return served

    def before(self, dispatch: Dispatch) -> Dispatch:
        """What handlers call, with the certificates of clients taken out; after the listeners have
        been bound."""
        if not self._transports:
            return dispatch
        from kbroker.security.certificate_principals import CertificatePrincipals

        return CertificatePrincipals(self._rules).before(dispatch)

    def schedule(self, scheduler: Scheduler, period_ms: int) -> None:
        """After the listeners have been bound. `period_ms`: between two looks at the files."""
        self._scheduler = scheduler
        if self._served:
            scheduler.schedule("TLS", self.tell, limits.LOG_LINE_PERIOD_MS)
            scheduler.schedule("TLS files", self.look, period_ms)

    # --- certificates that change -----------------------------------------------------------------

    def look_soon(self) -> None:
        """On the scheduler; any thread."""
        if self._scheduler is not None and self._served:
            self._scheduler.once("TLS files at once", self.look, 0)

    def look(self) -> None:
        """Serves what files have now; every so often their contents are read, whatever the system
        says of them."""
        from kbroker.security.tls_changes import signature_of

        self._looks += 1
        for name in self._served:
            config = self._dynamic.config
            if (
                signature_of(config.security_of(name)) != self._served[name].signature
                or self._looks % LOOKS_UNREAD == 0
            ):
                self._change(config, name)
            self._tell_of_time(name, self._served[name])

    def _tell_of_time(self, name: str, served: Served) -> None:
        """A line when a certificate is not valid, or not for long; once for each."""
        from kbroker.security.tls_changes import lapse_of

        now_s = self._now_s()
        lapse = lapse_of(served.context, now_s)
        if not lapse and served.context.not_after - now_s < EXPIRES_SOON_S:
            lapse = "expires in less than 14 days"
        if lapse and self._lapses.get(name) != lapse:
            logger.warning("%s: its certificate %s -> issue another one", name, lapse)
        self._lapses[name] = lapse

    def _now_s(self) -> float:
        return self._clock.wall_ms() / 1000

    def follow(self, before: BrokerConfig, now: BrokerConfig) -> None:
        """A change of settings, and of the files too if they have changed."""
        for name in self._served:
            self._change(now, name)

    def judge(self, config: BrokerConfig) -> None:
        """ConfigError if a listener cannot serve what `config` says. As in Apache Kafka the files
        are looked at soon after it, though no setting may have another value."""
        with self._lock:
            for name, served in self._served.items():
                found = self._changed(config, name, served)
                self._admin_context_of(config.security_of(name), found)
        self.look_soon()

    def _changed(self, config: BrokerConfig, name: str, served: Served) -> Served | None:
        from kbroker.security.tls_changes import changed

        between = config.listeners.inter_broker_name == name
        return changed(config.security_of(name), served, self._now_s(), is_between_brokers=between)

    @staticmethod
    def _admin_context_of(security: ListenerSecurity, found: Served | None) -> SSLContext | None:
        """None: nothing has changed, or of a listener of Kafka's protocol."""
        if found is None or security.key != ADMIN_LISTENERS:
            return None
        from kbroker.security.server_tls import server_context

        return server_context(security, found.stores)

    def _change(self, config: BrokerConfig, name: str) -> None:
        from kbroker.security.tls_changes import signature_of

        security = config.security_of(name)
        with self._lock:
            served = self._served[name]
            try:
                found = self._changed(config, name, served)
                of_admin = self._admin_context_of(security, found)
            except ConfigError as error:
                if self._refused.get(name) != error.message:
                    logger.warning("%s keeps its TLS: %s", name, error.message)
                self._refused[name] = error.message
                return
            self._refused.pop(name, None)
            if found is None:
                self._served[name] = served._replace(signature=signature_of(security))
                return
            if of_admin is not None:
                self._of_admin = of_admin
            else:
                self._transports[name].replace(found.context)
            self._served[name] = found
        logger.info(
            "%s: new connections get the certificate that expires at %d (seconds since 1970)",
            name,
            found.context.not_after,
        )

    def expiries(self) -> dict[str, int]:
        """By listener: when its certificate expires, in seconds since 1970. Any thread; without the
        lock, since a file that hangs must not hang /metrics and /readyz."""
        served = list(self._served.items())
        return {name: each.context.not_after for name, each in served}

    def validities(self) -> dict[str, str]:
        """By listener: how long its certificate is valid, for people. Any thread."""
        now_s = self._now_s()
        return {
            name: f"expires in {(until_s - now_s) / _DAY_S:.1f} days"
            if until_s > now_s
            else "has expired: new clients do not connect"
            for name, until_s in self.expiries().items()
        }

    # --- clients that fail ------------------------------------------------------------------------

    def tell(self) -> None:
        """A line for each kind of failure since the last call."""
        from kbroker.net._tls_transport import ENDED

        for name, transport in self._transports.items():
            protocol = self._dynamic.config.listeners.protocol_of(name)
            for reason, verify, count, host in transport.take_failures():
                level = logging.DEBUG if reason == ENDED else logging.INFO
                why = f"{reason} ({verify})" if verify else reason
                cause = _CAUSES.get(reason, "").format(protocol=protocol)
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
