"""Asks the group's coordinator for the committed offsets, all the time, and notes what it says.

An offset that falls below one whose commit was acknowledged before the question is the group's
loss, also where a member commits again a moment later.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka

from tests.cluster.brokers import PLACES, TIMEOUT_S
from tests.cluster.history import History

PAUSE_S: Final = 0.25
ANSWER_TIMEOUT_S: Final = 5.0


class OffsetsWatch:
    def __init__(self, settings: Mapping[str, Any], history: History) -> None:
        """`settings`: those of a client, with the group's id."""
        self._history = history
        self._ends = threading.Event()
        self._consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
        # One that hangs in its library is left.
        self._thread = threading.Thread(target=self._run, name="offsets", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            self.look()

    def look(self) -> bool:
        """Whether the coordinator has answered for every partition."""
        before = {place: self._history.committed_of(place) for place in PLACES}
        asked = [confluent_kafka.TopicPartition(*place) for place in PLACES]
        try:
            answered = self._consumer.committed(asked, timeout=ANSWER_TIMEOUT_S)
        except confluent_kafka.KafkaException:
            return False  # there is no coordinator for the moment
        for place, each in zip(PLACES, answered, strict=True):
            if each.error is None:
                # Nothing is committed: a negative offset.
                self._history.see_committed(place, before[place], max(each.offset, 0))
        return all(each.error is None for each in answered)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(TIMEOUT_S)
