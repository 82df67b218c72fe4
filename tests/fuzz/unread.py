"""What all connections together have the broker keep: answers that nothing reads."""

from __future__ import annotations

import contextlib
import re
import socket
import urllib.request
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.testing.plain import PlainBroker as Broker
from tests.system import process_facts

if TYPE_CHECKING:
    from tests.fuzz.costs import Candidate

CONNECTIONS: Final = 120
UNREAD_MAX: Final = 16 << 20  # queued.max.response.bytes
# Beside what waits: what handlers are making, each of them one, and what the allocator keeps.
BESIDE_MAX: Final = 96 << 20
_UNREAD: Final = re.compile(r"^kbroker_unsent_response_bytes(?:\{.*\})? (\S+)$", re.MULTILINE)
_WAIT_S: Final = 30.0


class Kept(NamedTuple):
    unsent: int  # as the broker counts it
    peak: int  # resident more than before


def kept(broker: Broker, candidates: Iterable[Candidate]) -> Kept:
    """By so many connections, each of which asks for one of these and reads nothing."""
    host, _, port = broker.bootstrap.rpartition(":")
    before = process_facts.resident_bytes(broker.pid)
    process_facts.forget_peak(broker.pid)
    frames = [candidate.frame for candidate in candidates]
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            peer = stack.enter_context(contextlib.closing(socket.socket()))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(_WAIT_S)
            peer.connect((host, int(port)))
            peer.sendall(frames[number % len(frames)])
        process_facts.wait_until_quiet(broker.pid)
        peak = process_facts.peak_bytes(broker.pid) - before
        return Kept(unsent_bytes(broker), peak)


def beyond(found: Kept) -> list[str]:
    """What is more than its bound, in words."""
    failures = []
    if found.unsent > UNREAD_MAX:
        failures.append(f"{found.unsent:,} bytes of answers wait, {UNREAD_MAX:,} may")
    if found.peak > UNREAD_MAX + BESIDE_MAX:
        failures.append(f"{found.peak:,} bytes were taken for them, and what is beside them")
    return failures


def unsent_bytes(broker: Broker) -> int:
    with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=_WAIT_S) as answer:
        found = _UNREAD.search(answer.read().decode())
    assert found is not None
    return int(float(found[1]))
