"""A listener's TLS as it is served, and whether another one may take its place while it runs.

Rules of Apache Kafka: a new certificate has the same name and at least the same other names, but
where `ssl.allow.dn.changes` and `ssl.allow.san.changes` say otherwise. Here they hold for files
that were replaced, too: a file of another service, put in place by mistake, is not served. Nor is
one that has expired or is not valid yet, where the one in use is, and between brokers one that the
others, which still have the one in use, would not accept, or whose broker would not accept theirs.

Any thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ConfigError
from kbroker.security.certificate_names import alternative_names
from kbroker.security.distinguished_name import name_of
from kbroker.security.stores import FILES, Stores, read_stores
from kbroker.security.tls import tls_context

if TYPE_CHECKING:
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.net._tls_context import TlsContext

# Settings that may change while a broker runs, without the stores.
_SETTINGS: Final = ("ssl.client.auth", "ssl.enabled.protocols", "ssl.cipher.suites")
_DN_MAY_CHANGE: Final = "ssl.allow.dn.changes"
_SAN_MAY_CHANGE: Final = "ssl.allow.san.changes"

# Numbers of the system for each file of the stores; None: it is not there.
Signature = tuple[tuple[int, int, int, int] | None, ...]


class Served(NamedTuple):
    """`signature`: of the files when they were read."""

    context: TlsContext
    stores: Stores
    settings: tuple[object, ...]
    signature: Signature


def serve(security: ListenerSecurity) -> Served:
    """What a listener is to serve by its settings and files now; ConfigError."""
    signature = signature_of(security)  # before they are read: a later change is seen
    stores = read_stores(security)
    return Served(tls_context(security, stores), stores, _settings(security), signature)


def changed(
    security: ListenerSecurity, before: Served, now_s: float, *, is_between_brokers: bool
) -> Served | None:
    """The TLS to serve in place of `before`; None: it is the same. ConfigError: it may not.
    `now_s`: since 1970."""
    signature = signature_of(security)
    stores = read_stores(security)
    if stores == before.stores and _settings(security) == before.settings:
        return None
    try:
        context = tls_context(security, stores)
        _check_names(security, before.context, context)
        lapse = lapse_of(context, now_s)
    except ValueError as error:  # of a certificate that OpenSSL reads, and we do not
        raise ConfigError(f"{security.name}: the new certificate: {error}") from None
    if lapse and not lapse_of(before.context, now_s):
        raise ConfigError(f"{security.name}: the new certificate {lapse}", "issue another one")
    if is_between_brokers:
        _check_brokers(security, before.stores, stores)
    return Served(context, stores, _settings(security), signature)


def lapse_of(context: TlsContext, now_s: float) -> str:
    """Why its certificate is not valid now; empty: it is."""
    if context.not_after <= now_s:
        return "has expired"
    return "is not valid yet" if context.not_before > now_s else ""


def _check_brokers(security: ListenerSecurity, before: Stores, after: Stores) -> None:
    from kbroker.security.broker_handshake import refusal

    auth = security.client_auth
    if refusal(before, before, auth):
        return  # they do not connect now either
    for server, client in ((after, after), (before, after), (after, before)):
        why = refusal(server, client, auth)
        if why:
            raise ConfigError(
                f"{security.name}: with the new stores brokers do not accept each other: {why}",
                "have each trust store hold the issuers of both certificates before one changes",
            )


def signature_of(security: ListenerSecurity) -> Signature:
    """Changes with the files of a listener: a link that leads elsewhere, another file of the name,
    one that was written."""
    return tuple(_stat(security[key]) for key in FILES if security[key] is not None)


def _stat(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a path with a character 0
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _settings(security: ListenerSecurity) -> tuple[object, ...]:
    return (security.client_auth, *(security[key] for key in _SETTINGS))


def _check_names(security: ListenerSecurity, before: TlsContext, after: TlsContext) -> None:
    if before.subject != after.subject and not security[_DN_MAY_CHANGE]:
        raise ConfigError(
            f"{security.name}: the new certificate is {name_of(after.subject)}'s, and the one in"
            f" use {name_of(before.subject)}'s",
            f"set {_DN_MAY_CHANGE}=true if that is meant",
        )
    lost = alternative_names(before.der) - alternative_names(after.der)
    if lost and not security[_SAN_MAY_CHANGE]:
        raise ConfigError(
            f"{security.name}: the new certificate lacks {len(lost)} of the subject alternative"
            " names of the one in use",
            f"set {_SAN_MAY_CHANGE}=true if that is meant",
        )
