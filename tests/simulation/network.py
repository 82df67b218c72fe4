"""The network between the processes of a simulated cluster: requests under way, late or lost.

A request arrives a moment later, or much later (`delay`, or by chance: after its sender has given
up), or never; so does its answer. A way that is cut loses messages in one direction only. Where no
broker listens the sender is refused at once. A request ends for its sender when its connection is
lost, by chance with the request or the answer on its way, or when the target dies; it may still be
carried out. A sender waits for an answer for REQUEST_TIMEOUT_MS at most.

A broker that is paused gets the request when it goes on: the sender may have given up long before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, Any

from tests.simulation.dice import below, between
from tests.simulation.loop import HANDLER, LINKS, Callback, Process, StepLoop

if TYPE_CHECKING:
    from tests.simulation.broker import Running

CLIENTS = 0  # the place of all processes that are not brokers
REQUEST_TIMEOUT_MS = 1_500
SLOW_MS_MAX = 400
LATE_MS = (300, 3_500)  # shorter and longer than any sender waits


class Lost(Enum):
    REFUSED = "nothing was sent"
    UNKNOWN = "it may have been done"


# Brokers answer each other with bytes; an answer to a client is any object.
Answer = Callable[[Any], None]
Serve = Callable[["Running", Answer], None]
Done = Callable[[Any], None]


class Exchange:
    """One request and its answer."""

    __slots__ = ("_done", "_network", "_source", "held_up", "over", "target", "timer", "ways")

    def __init__(
        self, network: Network, source: Process, ways: tuple[int, int], done: Done
    ) -> None:
        self._network = network
        self._source = source
        self._done = done
        self.ways = ways
        self.target: Running | None = None
        self.timer: Callback | None = None
        self.over = False
        self.held_up = False  # its answer does not come, or much later

    def arrive(self, serve: Serve) -> None:
        target = self.target
        if target is not None:
            target.process.run(lambda: serve(target, self.answer), HANDLER)

    def answer(self, body: Any) -> None:
        source, target = self.ways
        if self.over:
            return
        if self._network.is_cut(target, source):
            self.held_up = True
            return
        self._network.later(self.end, Lost.UNKNOWN if self._network.breaks() else body)

    def end(self, result: Any) -> None:
        if self.over:
            return
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        self._network.forget(self)
        self._source.run(lambda: self._done(result), LINKS)


class Network:
    """`brokers` are those that listen."""

    def __init__(
        self,
        loop: StepLoop,
        dice: random.Random,
        slow_percent: int,
        late_percent: int,
        broken_percent: int = 0,
    ) -> None:
        """Of messages, of requests, and of messages again: those that a connection ends with."""
        self._loop = loop
        self._dice = dice
        self._slow_percent = slow_percent
        self._late_percent = late_percent
        self._broken_percent = broken_percent
        self._cut: dict[tuple[int, int], int] = {}
        self._open: dict[Exchange, None] = {}
        self._delays_ms: dict[tuple[int, int], int] = {}
        self._resets_until_ms: dict[tuple[int, int], int] = {}
        self.brokers: dict[int, Running] = {}
        self.requests = 0

    def request(self, source: Process, ways: tuple[int, int], serve: Serve, done: Done) -> None:
        """From a process at the first place to the broker that listens at the second."""
        if not source.alive:
            return
        exchange = Exchange(self, source, ways, done)
        exchange.target = self.brokers.get(ways[1])
        self.add(exchange)
        if self.is_cut(*ways):
            exchange.held_up = True
            return
        if exchange.target is None:
            self.later(exchange.end, Lost.REFUSED)
        elif self.breaks() or self._is_reset(ways):
            self.later(exchange.end, Lost.UNKNOWN)
        else:
            delay_ms = self.delay_of(ways)
            exchange.held_up = delay_ms > 0
            self.later(exchange.arrive, serve, delay_ms=delay_ms)

    def add(self, exchange: Exchange) -> None:
        """It is under way, for REQUEST_TIMEOUT_MS at most."""
        self.requests += 1
        self._open[exchange] = None
        exchange.timer = self._loop.later(REQUEST_TIMEOUT_MS, exchange.end, Lost.UNKNOWN)

    def delay_of(self, ways: tuple[int, int]) -> int:
        """The extra delay of a request along these ways."""
        if self._late_percent and below(self._dice, 100) < self._late_percent:
            return self._dice.randrange(*LATE_MS)
        return self._delays_ms.get(ways, 0)

    def breaks(self) -> bool:
        """Whether the connection does, with the next message on its way."""
        return bool(self._broken_percent) and below(self._dice, 100) < self._broken_percent

    def later(self, call: Callable[..., object], *args: object, delay_ms: int = 0) -> None:
        """A moment later, as long as a message is under way."""
        dice = self._dice
        slow = below(dice, 100) < self._slow_percent
        moment_ms = between(dice, 20, SLOW_MS_MAX) if slow else between(dice, 0.5, 2)
        self._loop.later(delay_ms + moment_ms, call, *args)

    def forget(self, exchange: Exchange) -> None:
        self._open.pop(exchange, None)

    # --- faults -----------------------------------------------------------------------------------

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut

    def cut(self, source: int, target: int) -> None:
        """One way; counted, so that of two cuts at once each is mended by itself."""
        self._cut[source, target] = self._cut.get((source, target), 0) + 1

    def mend(self, source: int, target: int) -> None:
        left = self._cut.get((source, target), 0) - 1
        if left > 0:
            self._cut[source, target] = left
        else:
            self._cut.pop((source, target), None)

    @property
    def is_whole(self) -> bool:
        """Whether all processes reach each other, in time, and no broker still waits for a message
        that was held up before."""
        late = self._late_percent or any(self._delays_ms.values()) or self._held_up()
        return not (self._cut or late or any(map(self._is_reset, self._resets_until_ms)))

    @property
    def is_slow(self) -> bool:
        """Whether some messages take up to SLOW_MS_MAX; that is not healed."""
        return self._slow_percent > 0

    def is_whole_between(self, places: Collection[int]) -> bool:
        """The same of these."""
        if self._late_percent:
            return False
        ways = {*itertools.permutations(places, 2)}
        slow = {way for way, delay_ms in self._delays_ms.items() if delay_ms}
        broken = {*filter(self._is_reset, self._resets_until_ms)}
        return ways.isdisjoint({*self._cut} | slow | broken | self._held_up())

    def _held_up(self) -> set[tuple[int, int]]:
        """The ways between brokers of the requests whose answers come late or never."""
        return {each.ways for each in self._open if each.held_up and CLIENTS not in each.ways}

    def mend_all(self) -> None:
        self._cut.clear()
        self._delays_ms.clear()
        self._resets_until_ms.clear()
        self._late_percent = self._broken_percent = 0

    def delay(self, source: int, target: int, delay_ms: int) -> None:
        """Requests along that way come so much later, longer than REQUEST_TIMEOUT_MS or not."""
        self._delays_ms[source, target] = delay_ms

    def reset(self, source: int, target: int, for_ms: int) -> None:
        """Each request along that way ends its connection before it arrives."""
        self._resets_until_ms[source, target] = self._loop.now_ms + for_ms

    def _is_reset(self, ways: tuple[int, int]) -> bool:
        return self._loop.now_ms < self._resets_until_ms.get(ways, 0)

    def drop(self, one: int, other: int) -> None:
        """The connections between two places are lost, with the requests on them."""
        for exchange in [each for each in self._open if {*each.ways} == {one, other}]:
            self.later(exchange.end, Lost.UNKNOWN)

    def died(self, running: Running) -> None:
        """The broker does not listen any more, and requests to it end for their senders."""
        if self.brokers.get(running.node_id) is running:
            del self.brokers[running.node_id]
        for exchange in [each for each in self._open if each.target is running]:
            self.later(exchange.end, Lost.UNKNOWN)
