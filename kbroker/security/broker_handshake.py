"""Whether brokers accept each other: a handshake in memory between two pairs of stores.

Place in the flow: before a certificate or a trust store of the listener between brokers is
replaced, the ones in use and the new ones shake hands both ways, as in Apache Kafka: else the
brokers of a cluster would leave each other one by one, as each reads its files. By Python's ssl.

Names of hosts are not looked at. Any thread; a few milliseconds.
"""

from __future__ import annotations

import ssl
from typing import Final

from kbroker.security.client_tls import show_certificate
from kbroker.security.stores import Stores

_STEPS_MAX: Final = 16


def refusal(server: Stores, client: Stores, client_auth: str) -> str:
    """Why a broker with `client` and one with `server` do not connect; empty: they do."""
    try:
        _shake_hands(_server(server, client_auth), _client(client))
    except (ssl.SSLError, ValueError) as error:
        return str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or error)
    return ""


def _server(stores: Stores, client_auth: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show_certificate(context, stores)
    if client_auth != "none":
        _trust(context, stores)
        required = client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _client(stores: Stores) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    show_certificate(context, stores)
    _trust(context, stores)
    return context


def _trust(context: ssl.SSLContext, stores: Stores) -> None:
    if stores.trusted is None:
        context.load_default_certs()
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=stores.trusted.decode("ascii"))


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    left = list(sides)
    for _ in range(_STEPS_MAX):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not left:
            return
    raise ValueError("the handshake does not end")
