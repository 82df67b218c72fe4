"""What connections have caused and has not gone with them.

Every C object that a request can bring into being is counted (`core/_live_objects`). With the last
connection go all of `OF_CONNECTIONS`; the others have a bound and an end of their own: fetch
sessions by their cache, groups and members by their sessions and the retention of offsets,
partitions, segments and producers by their topics.

    live_objects(server)    all of them, for /metrics and for tests
    stayed(counts)          those that are there without a connection: a leak

A broker says at its stop what stayed. Nothing here is called by a request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.core._live_objects import live_counts

if TYPE_CHECKING:
    from kbroker._net import SocketServer

logger: Final = logging.getLogger("kbroker.server")

OF_CONNECTIONS: Final = (
    "connections",
    "requests",
    "frame_copies",
    "slot_rings",
    "parked_requests",
    "watches",
    "chunks",
)
STAYED: Final = "objects outlived their connections"


def live_objects(server: SocketServer) -> dict[str, int]:
    """How many of each kind there are; the chunk a network thread reads into is not counted."""
    requests = sum(each["live_requests"] for each in server.statistics()["processors"])
    return {**live_counts(), "requests": requests}


def stayed(counts: Mapping[str, int]) -> dict[str, int]:
    """Of these, what connections have caused and there should be none of."""
    return {kind: counts[kind] for kind in OF_CONNECTIONS if counts[kind] != 0}


def log_what_stayed(counts: Mapping[str, int]) -> None:
    """After the one broker of this process has stopped."""
    if found := stayed(counts):
        what = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.items())
        logger.warning("%s, an error in kbroker that costs memory: %s", STAYED, what)
