"""How long certificates are valid that brokers send to our connections.

Nothing is imported for it where no listener speaks TLS. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.errors import KafkaError, UserError
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from kbroker.findings.pieces import Pause, no_pause

if TYPE_CHECKING:
    from kbroker.peer.client import Client

EXPIRES_SOON_S: Final = 14 * 86_400
RENEW: Final = "issue another one and replace the file; a broker that runs sees it by itself"
_DAY_S: Final = 86_400


def expiry(name: str, seen: str, left_s: float) -> Check:
    """How long what was seen is valid."""
    if left_s <= 0:
        return Check(FAILING, name, f"{seen} has expired", RENEW)
    verdict = WARNING if left_s < EXPIRES_SOON_S else OK
    fix = RENEW if verdict == WARNING else ""
    return Check(verdict, name, f"{seen} expires in {int(left_s // _DAY_S)} days", fix)


def of_brokers(client: Client) -> list[Check]:
    """The certificates of brokers, as this client has got them: a line for each that expires soon,
    or one for all. None without TLS."""
    now_s = client.cluster.clock.wall_ms() / 1000
    return expiries({each: until_s - now_s for each, until_s in not_after_s(client).items()})


def not_after_s(client: Client, pause: Pause = no_pause) -> dict[int, float]:
    """When the certificate of each broker expires, in seconds since 1970; of those with TLS.
    `pause` is called before each."""
    found: dict[int, float] = {}
    for node_id, address in sorted(client.cluster.brokers.items()):
        pause()
        try:
            until_s = client.cluster.link(address).certificate_not_after_s()
        except (KafkaError, UserError):  # it is a line of its own
            continue
        if until_s is not None:
            found[node_id] = until_s
    return found


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
