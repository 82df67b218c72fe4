"""Which topics a group's members have subscribed to, as far as the broker can tell.

The bytes of a subscription are the clients' own business; only of the protocol type "consumer" is
their beginning known (int16 version, then an int32-counted array of int16-counted topic names, in
every version so far). A client that sends something else in that place makes the subscriptions of
its group unknown: then no offset expires by itself and none counts as in use.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.protocol.wire import ProtocolError, Reader

CONSUMER: Final = "consumer"


def subscribed_topics(
    protocol_type: str | None, subscriptions: Iterable[bytes]
) -> frozenset[str] | None:
    """Topics of all members' subscriptions; None if that cannot be known."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for subscription in subscriptions:
        reader = Reader(subscription, flexible=False)
        try:
            if reader.int16() < 0:
                return None
            topics.update(reader.string() for _ in range(reader.array()))
        except ProtocolError:
            return None
    return frozenset(topics)
