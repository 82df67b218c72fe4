"""TLS of a client of ours: between brokers, and of the command line. By Python's ssl.

Place in the flow: a connection of `peer/` is wrapped in it before its first request. The broker's
certificate must be issued by the trust store and be for the name that the client connects to, but
where `ssl.endpoint.identification.algorithm` is empty. Imported only by clients that speak TLS.

Suites of TLS 1.3 are the library's: Python's ssl cannot choose among them. Immutable; any thread.
"""

from __future__ import annotations

import os
import ssl
from typing import Final, NamedTuple

from kbroker.config.cipher_suites import TLS_1_2_SUITES
from kbroker.errors import ConfigError
from kbroker.security.stores import (
    PASSWORD,
    TRUST_FILE,
    TRUSTED,
    Settings,
    Stores,
    has_key_store,
    read_stores,
    read_trusted,
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ENABLED: Final = "ssl.enabled.protocols"
_SUITES: Final = "ssl.cipher.suites"
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"


class ClientTls(NamedTuple):
    context: ssl.SSLContext


def client_tls(settings: Settings) -> ClientTls:
    """By the keys `ssl.*` of a client; ConfigError if they, or its files, do not do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings[_IDENTIFICATION].lower() == "https"
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[each] for each in settings[_ENABLED] if each in _VERSIONS]
    if not versions:
        raise ConfigError(f"{settings.name_of(_ENABLED)}: there is none that is spoken")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    suites = [TLS_1_2_SUITES[each] for each in settings[_SUITES] if each in TLS_1_2_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    _trust(context, settings)
    if has_key_store(settings):
        _show(context, settings, read_stores(settings))
    return ClientTls(context)


def _trust(context: ssl.SSLContext, settings: Settings) -> None:
    trusted = read_trusted(settings)
    if trusted is None:
        context.load_default_certs()
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: each of them is trusted
    try:
        context.load_verify_locations(cadata=trusted.decode("ascii"))
    except ssl.SSLError as error:
        key = TRUST_FILE if settings[TRUSTED] is None else TRUSTED
        raise ConfigError(f"{settings.name_of(key)}: {error.reason or error}") from None


def _show(context: ssl.SSLContext, settings: Settings, stores: Stores) -> None:
    try:
        show_certificate(context, stores)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{settings.name_of(PASSWORD)}: the key store cannot be used: {error.reason or error}"
        ) from None


def show_certificate(context: ssl.SSLContext, stores: Stores) -> None:
    """Has connections of the context show the certificate of these stores; ssl.SSLError."""
    # Python's ssl reads files only: this one is in memory, and gone with its descriptor.
    descriptor = os.memfd_create("key store", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(stores.key + stores.chain)
        # A password, though it is empty: nothing is asked for at a terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=stores.password)
    finally:
        os.close(descriptor)
