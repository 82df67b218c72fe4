"""What `kbroker doctor` and `kbroker health` say of certificates: how long they are valid.

`doctor` looks at the stores that the settings name, as the broker would read them, now; `health` at
the certificates that brokers send to its connections. Nothing is imported for it where no listener
speaks TLS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.cli.checks import FAILING, OK, WARNING, Check
from kbroker.clock import Clock
from kbroker.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.peer.client import Client

EXPIRES_SOON_S: Final = 14 * 86_400
_DAY_S: Final = 86_400
_FIX: Final = "issue another one and replace the file; a broker that runs sees it by itself"


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
        return Check(FAILING, "tls", f"{security.name}: its certificate: {error}", _FIX)
    if lapse:
        return Check(FAILING, "tls", f"{seen} {lapse}", _FIX)
    return expiry("tls", seen, context.not_after - now_s)


def expiry(name: str, seen: str, left_s: float) -> Check:
    """How long what was seen is valid."""
    if left_s <= 0:
        return Check(FAILING, name, f"{seen} has expired", _FIX)
    verdict = WARNING if left_s < EXPIRES_SOON_S else OK
    fix = _FIX if verdict == WARNING else ""
    return Check(verdict, name, f"{seen} expires in {int(left_s // _DAY_S)} days", fix)


def of_brokers(client: Client) -> list[Check]:
    """The certificates of brokers, as this client has got them: a line for each that expires soon,
    or one for all. None without TLS."""
    now_s = client.cluster.clock.wall_ms() / 1000
    left_s: dict[int, float] = {}
    for node_id, address in sorted(client.cluster.brokers.items()):
        try:
            until_s = client.cluster.link(address).certificate_not_after_s()
        except KafkaError:  # it is a line of its own
            continue
        if until_s is not None:
            left_s[node_id] = until_s - now_s
    return expiries(left_s)


def expiries(left_s: Mapping[int, float]) -> list[Check]:
    """By broker: how long its certificate is valid."""
    lines = {
        node_id: expiry("certificate", f"broker {node_id}: its certificate", left)
        for node_id, left in left_s.items()
    }
    troubles = [line for line in lines.values() if line.verdict != OK]
    if troubles or not lines:
        return troubles
    first = lines[min(left_s, key=lambda each: left_s[each])]
    if len(lines) == 1:
        return [first]
    return [first._replace(seen=f"{len(lines)} brokers; the first, {first.seen}")]
