"""The controller's events of a simulated broker, of which each is a callback of its process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kbroker.metadata.controller.event_loop import EventLoop
from kbroker.metadata.controller.events import Event
from tests.simulation.dice import below
from tests.simulation.loop import CONTROLLER, Process


class SteppedEvents(EventLoop[Event]):
    """The controller's events, each a callback of the broker's process."""

    def __init__(
        self,
        process: Process,
        dice: random.Random,
        name: str,
        handle: Callable[[Event], None],
        *how: Any,
    ) -> None:
        super().__init__(name, self._handled, *how)
        self._handle_event = handle
        self._process = process
        self._dice = dice
        self._started = False
        self._free_at_ms = 0.0  # until then it is busy
        self._interrupted = self._finishes = False
        self._missed = 0
        self.handling: Event | None = None

    def _handled(self, event: Event) -> None:
        self.handling = event
        try:
            self._handle_event(event)
        finally:
            self.handling = None

    def start(self) -> None:
        """The first event, which its sender waits for, is handled where it is posted."""

    def post(self, event: Event, *, urgent: bool = False) -> bool:
        if not super().post(event, urgent=urgent):
            return False
        if not self._started:
            self._started = True
            self.turn()
        else:
            now_ms = self._process.now_ms
            self._free_at_ms = max(self._free_at_ms, now_ms) + self._takes_ms()
            self._process.later(self._free_at_ms - now_ms, self.turn, CONTROLLER)
        return True

    def _takes_ms(self) -> float:
        """The store is slow at times, and there are thousands of logs."""
        chance = below(self._dice, 600)
        if chance == 0:
            return self._dice.uniform(100, 600)
        return self._dice.uniform(5, 60) if chance < 12 else 0.05

    def hang(self, for_ms: int) -> None:
        self._free_at_ms = max(self._free_at_ms, self._process.now_ms + for_ms)

    def interrupt(self, others: Callable[[], object]) -> None:
        """Stop in the midst of an event, while handlers, fetchers and other brokers go on."""
        if self._finishes:
            return
        self._interrupted = True
        others()
        self._interrupted = False
        missed, self._missed = self._missed, 0
        for _ in range(missed):
            self._process.later(0, self.turn)

    def turn(self) -> None:
        if self._interrupted:
            self._missed += 1
        else:
            super().turn()

    def finish(self) -> None:
        """A stop: all queued events are handled at once."""
        self._interrupted, self._finishes = False, True
        while self.queued:
            self.turn()
