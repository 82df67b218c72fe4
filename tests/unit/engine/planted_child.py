"""A server with one topic, in a process of its own that may end: run by test_plants.py.

Each line on standard input is a command, answered by a line of JSON once it is done. The test's
next request meets the plant; the process then ends by itself, or with its input.
"""

import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbroker.core._require import broken_invariants
from kbroker.testing._plants import HeldTurn, has_handler_asleep, plant
from tests.unit.net.harness import Rig, eventually


class Commands:
    """What a line may say; its second word, if there is one, is the argument."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        topic = rig.create("planted")
        rig.create("other")
        self._log = topic.logs[0]
        self.hello = {"port": rig.port, "topic_id": str(topic.topic_id)}

    def plant(self, name: str) -> None:
        """While its network thread does nothing, and its handler sleeps."""
        with HeldTurn(self._rig.server):
            eventually(lambda: has_handler_asleep(self._rig.hot), "the handler sleeps")
            plant(name, self._rig.hot, self._log)

    def spoil(self, name: str) -> None:
        """What is planted is in the answer of the parked request, or in its connection."""
        with HeldTurn(self._rig.server) as held:
            eventually(lambda: self._expire() or held.has_answers(), "an answer")
            plant(name, self._rig.hot, self._log)

    def parked(self, count: str) -> None:
        self._rig.wait_parked(int(count))
        eventually(self._is_noticed, "the network thread knows that it waits")

    def _is_noticed(self) -> bool:
        with HeldTurn(self._rig.server) as held:
            return not held.has_notices()

    def received(self) -> int:
        """Bytes, by all connections."""
        return self._rig.total("received_bytes")

    def fills_up(self, count: str) -> None:
        eventually(lambda: self.received() >= int(count), "bytes")

    def expire(self) -> None:
        eventually(lambda: self._rig.ticks, "a deadline")
        self._expire()

    def corrected(self) -> None:
        eventually(lambda: broken_invariants()["count"], "a count")

    def advance(self) -> None:
        self._log.advance()

    def lead_two(self) -> None:
        """A follower is in sync, and fetches nothing."""
        self._log.set_leadership(1, True, 0, 2, {2: True})

    def cut(self) -> bool:
        """Whether the log could be."""
        self._log.set_leadership(2, False, 7, 1)
        try:
            self._log.truncate_to(0)
        except OSError:
            return False
        return True

    def flush(self) -> bool:
        """Whether the log could be."""
        try:
            self._log.log.flush()
        except OSError:
            return False
        return True

    def end_times(self) -> bool:
        """Whether the last entry of the time index could be written."""
        try:
            self._log.log.end_times()
        except OSError:
            return False
        return True

    def state(self) -> dict[str, Any]:
        return {"online": self._log.log.online, "broken": broken_invariants()}

    def _expire(self) -> None:
        with suppress(IndexError):  # there are no more of them
            while True:
                self._rig.hot.expire(self._rig.ticks.pop(0))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    commands = Commands(Rig(Path(sys.argv[1])))
    answer: Any = commands.hello
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        line = sys.stdin.readline().split()
        if not line:
            os._exit(0)  # what was planted is not to be met at the end
        answer = getattr(commands, line[0])(*line[1:])


if __name__ == "__main__":
    main()
