"""No member of a streams group waits longer than a killed one is missed and the others are busy.

Processes of an application are started, stopped and killed, each with some threads (`threads.py`),
and so is the broker. When it is quiet, the group comes to rest in a time that is bounded by the
session timeout and by the time that members need for their tasks; never by the rebalance timeout.

python -m tests.unit.coordinator.streams_group.test_waits FIRST COUNT    more of them
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field

import pytest

from kbroker.coordinator.streams_group.messages import HeartbeatAsked
from kbroker.coordinator.streams_group.state import StreamsGroupLabel
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.streams_group.threads import State, Thread
from tests.unit.coordinator.streams_group.world import GROUP, World

SESSION_MS = 2_000
INTERVAL_MS = 500
TICK_MS = 10
CALM_MS = 4_000  # of heartbeats and of topics
STEPS = 8  # of a rebalance, in which a member is busy
PROCESSES_MAX = 4


@dataclass
class Process:
    process_id: str
    size: int
    starts_ms: int
    threads: list[Thread] = field(default_factory=list)


class Application:
    """One run by one seed."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = random.Random(seed)
        self.world = World(
            standbys=dice.choice([0, 1, 1, 2]), delay_ms=dice.choice([0, 3_000]),
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS,
        )  # fmt: skip
        self.loses = dice.choice([0, 0, 0.02, 0.1])
        self.busy_ms = dice.choice([20, 300, 1_500])
        self.partitions = dice.choice([1, 3, 6])
        self.world.create(topic_of("t", self.partitions))
        self.processes = [Process("p1", 1, 0)]
        self.made = 0
        self.up_ms = 0
        self.is_up = True
        self.changed_ms = 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._rest()
            for _ in range(self.dice.choice([1, 1, 2, 3])):
                self._disturb()
                self._pass(self.dice.choice([0, 100, 1_000]))
        self._rest()

    def _pass(self, time_ms: int) -> None:
        for _ in range(time_ms // TICK_MS):
            self._tick()

    def _rest(self) -> None:
        limit_ms = SESSION_MS + self.world.own.initial_rebalance_delay_ms + CALM_MS
        limit_ms += STEPS * self.busy_ms
        while not self._rests():
            self._tick()
            took_ms = self.world.clock.monotonic_ms() - self.changed_ms
            assert took_ms <= limit_ms, f"it does not rest: {self.world.group.state}"

    def _tick(self) -> None:
        now_ms = self.world.clock.monotonic_ms()
        if not self.is_up and now_ms >= self.up_ms:
            self.is_up, self.changed_ms = True, now_ms
            self.world.jobs.clear()
            self.world.fail_over()
        for process in self.processes:
            if not process.threads and now_ms >= process.starts_ms:
                self._start(process)
        for thread in self._threads():
            thread.tick(is_up=self.is_up)
            self._make_topics(thread)
        while self.world.jobs:
            self.world.jobs.pop(0)()
        self.world.elapse(TICK_MS)
        assert not self.world.failures.count, "a step has failed"

    def _start(self, process: Process) -> None:
        for _ in range(process.size):
            self.made += 1
            thread = Thread(
                self.world, self.dice, f"m{self.made}", process.process_id, self.busy_ms
            )
            thread.loses = self.loses
            process.threads.append(thread)
        self.changed_ms = self.world.clock.monotonic_ms()

    def _make_topics(self, thread: Thread) -> None:
        missing, thread.missing = thread.missing, {}
        absent = {name for name in missing if self.world.image.topic(name) is None}
        if absent and self.dice.random() < 0.2:
            self.world.create(*(topic_of(name, missing[name]) for name in absent))
            self.changed_ms = self.world.clock.monotonic_ms()

    def _threads(self) -> list[Thread]:
        return [thread for process in self.processes for thread in process.threads]

    def _rests(self) -> bool:
        state, threads = self.world.group._state, self._threads()
        if not self.is_up or state.label is not StreamsGroupLabel.STABLE:
            return False
        if not all(process.threads for process in self.processes):
            return False
        if set(state.members) != {each.member_id for each in threads}:
            return False
        if any(each.state is not State.STABLE for each in threads):
            return False
        have = Counter(
            (id_, index)
            for each in threads
            for id_, some in each.has.tasks.active.items()
            for index in some
        )
        return have == Counter((id_, index) for id_ in "01" for index in range(self.partitions))

    # --- what is done to it ---

    def _disturb(self) -> None:
        self.changed_ms = self.world.clock.monotonic_ms()
        often = (self._kill, self._kill_broker)
        self.dice.choice((*often, *often, self._more, self._less))()

    def _kill(self) -> None:
        process = self.dice.choice(self.processes)
        process.threads = []
        process.starts_ms = self.changed_ms + self.dice.choice([300, 800, 1_500, 3_000])

    def _kill_broker(self) -> None:
        if self.is_up:
            self.is_up, self.up_ms = False, self.changed_ms + self.dice.randint(200, 1_500)
            for each in self._threads():
                each.disconnect()

    def _more(self) -> None:
        if len(self.processes) < PROCESSES_MAX:
            self.made += 1
            process = Process(f"p{self.made}", self.dice.choice([1, 1, 2]), self.changed_ms)
            self.processes.append(process)

    def _less(self) -> None:
        """For good; half of them say that they leave."""
        if len(self.processes) > 1:
            process = self.dice.choice(self.processes)
            self.processes.remove(process)
            if self.is_up and self.dice.random() < 0.5:
                for each in process.threads:
                    self.world.begin(HeartbeatAsked(GROUP, each.member_id, -1))


ROUNDS = 12


@pytest.mark.parametrize("seed", [0, 4, 5])
def test_no_member_waits_for_long(seed: int) -> None:
    Application(seed).run(ROUNDS)


if __name__ == "__main__":
    begin, count = int(sys.argv[1]), int(sys.argv[2])
    for each in range(begin, begin + count):
        try:
            Application(each).run(ROUNDS)
        except AssertionError as error:
            raise AssertionError(f"seed {each}: {error}") from error
    print(f"{count} runs from {begin} on: no complaint")
