"""TLS of the admin port, which is HTTP on an event loop: by Python's ssl.

Place in the flow: settings and stores are those of a listener, read and judged as a listener's are
(`tls_changes.py`); the context is made of these stores. A listener of Kafka's protocol has
its own transport in C (`tls.py`), which an event loop cannot serve.

Suites of TLS 1.3 are the library's: Python's ssl cannot choose among them. Any thread.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from kbroker.config.cipher_suites import TLS_1_2_SUITES
from kbroker.errors import ConfigError
from kbroker.security.client_tls import show_certificate
from kbroker.security.stores import PASSWORD, Stores

if TYPE_CHECKING:
    from kbroker.config.listener_security import ListenerSecurity

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ENABLED: Final = "ssl.enabled.protocols"
_SUITES: Final = "ssl.cipher.suites"


def server_context(security: ListenerSecurity, stores: Stores) -> ssl.SSLContext:
    """For connections of clients; ConfigError if Python's ssl does not serve what a listener of
    these settings would."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= (
        ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    versions = [_VERSIONS[each] for each in security[_ENABLED] if each in _VERSIONS]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    suites = [TLS_1_2_SUITES[each] for each in security[_SUITES] if each in TLS_1_2_SUITES]
    try:
        if suites:
            context.set_ciphers(":".join(suites))
        show_certificate(context, stores)
        _verify_clients(context, security.client_auth, stores.trusted)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{security.name_of(PASSWORD)}: the stores of {security.name} cannot be used with"
            f" https: {error.reason or error}"
        ) from None
    return context


def _verify_clients(context: ssl.SSLContext, client_auth: str, trusted: bytes | None) -> None:
    if client_auth == "none":
        return
    context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    # So that every connection proves its certificate, as on a listener.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: each of them is trusted
    context.load_verify_locations(cadata=trusted.decode("ascii"))
