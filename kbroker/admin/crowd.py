"""Which connection gives way where the admin port has too many.

Not the oldest: where connections come quickly, a visitor from afar would be the oldest before its
request has arrived. One at random has a chance: of two that are drawn, the one whose network has
more connections, so that one address with very many closes its own. Two and not all are compared,
so visitors through one proxy are closed at most twice as often as by chance. The listeners of
brokers do the same (`net/_opening.pyx`).

A network is an address of IPv4, or the /64 of one of IPv6, since that is what a host has.

Pure.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kbroker.console.network import network_of

T = TypeVar("T")

DICE: random.Random = random.SystemRandom()


def gives_way(
    waiting: Sequence[T],
    every: Iterable[T],
    host_of: Callable[[T], str],
    dice: random.Random | None = None,
) -> T:
    """One of `waiting`, which are among `every`."""
    hosts = Counter(map(host_of, every))
    networks = {host: network_of(host, ()) for host in hosts}
    counts: Counter[str] = Counter()
    for host, count in hosts.items():
        counts[networks[host]] += count
    dice = dice or DICE
    drawn = (dice.choice(waiting), dice.choice(waiting))
    return max(drawn, key=lambda each: counts[networks[host_of(each)]])
