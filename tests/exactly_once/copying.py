"""Copiers as processes, and kills at their steps.

A copier stops at each step (copiers/__init__.py), so a kill is exact: of the copier, or of its
broker, which is started again while the copier stops, or a moment after it has gone on. A kill
while it commits comes some milliseconds after the step before.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tests.exactly_once import world
from tests.exactly_once.checker import all_committed, each_once, nothing_open
from tests.exactly_once.copiers import (
    COMMANDS,
    COMMITTED,
    ENDED_BY_AN_ERROR,
    LAST_STEP,
    OFFSETS,
    SENT,
    TAKEN,
)
from tests.exactly_once.world import Numbers
from tests.support.source_tree import ROOT

COPIER: Final = "copier"
BROKER: Final = "broker"
COMMITTING: Final = "committing"
STEPS: Final = (TAKEN, SENT, OFFSETS, COMMITTING, COMMITTED)
COMMIT_S: Final = (0.0, 0.02)
AWAY_S: Final = (0.0, 1.0)
ENDS: Final = (-9, ENDED_BY_AN_ERROR)
# Of a group. aiokafka's transactions do not name a member's generation, so it is alone there.
COPIERS: Final = {"confluent-kafka": 2, "aiokafka": 1, "java": 2, "franz-go": 2}
GOES_ON_S: Final = 90.0


class Kill(NamedTuple):
    party: str
    step: str

    def __str__(self) -> str:
        return f"{self.party} at {self.step}"


def every_kill(library: str) -> list[Kill]:
    return [
        Kill(party, step)
        for party in (COPIER, BROKER)
        for step in STEPS
        if step != OFFSETS or LAST_STEP[library] == OFFSETS
    ]


class Target:
    """The one kill that is to come; copiers meet it, the first one that is at its step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: Kill | None = None
        self.happened = threading.Event()

    def aim(self, kill: Kill) -> None:
        self.happened.clear()
        with self._lock:
            self._wanted = kill

    def met(self, step: str) -> Kill | None:
        with self._lock:
            found = self._wanted
            if found is None or found.step != step:
                return None
            self._wanted = None
            return found


class Copying:
    """One copier, started again whenever it has ended."""

    def __init__(
        self,
        library: str,
        words: Sequence[str],
        target: Target,
        kill_broker: Callable[[float], None],
        dice: random.Random,
    ) -> None:
        """`words` are the copier's. `kill_broker` starts it again after so many seconds."""
        self._command = [*COMMANDS[library](), *words]
        self._last_step = LAST_STEP[library]
        self._target = target
        self._kill_broker = kill_broker
        self._dice = dice
        self.committed = 0
        self.ended_by_errors = 0
        self.faults: list[str] = []
        self._ends = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="copying")
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            with subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            ) as process:
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    self._at(process, line.strip())
            if process.returncode not in ENDS and not self._ends.is_set():
                self.faults.append(f"a copier ended with status {process.returncode}")
                time.sleep(1)  # or it ends as often as it can be started
            self.ended_by_errors += process.returncode == ENDED_BY_AN_ERROR

    def _at(self, process: subprocess.Popen[str], step: str) -> None:
        self.committed += step == COMMITTED
        kill = self._target.met(step)
        if kill is not None:
            self._happen(process, kill, lambda: self._go_on(process))
            return
        kill = self._target.met(COMMITTING) if step == self._last_step else None
        self._go_on(process)
        if kill is not None:
            time.sleep(self._dice.uniform(*COMMIT_S))
            self._happen(process, kill, lambda: None)

    def _happen(
        self, process: subprocess.Popen[str], kill: Kill, go_on: Callable[[], None]
    ) -> None:
        if kill.party == COPIER:
            process.kill()
        elif self._dice.random() < 0.5:  # it is back before the copier goes on
            self._kill_broker(0.0)
            go_on()
        else:
            away = threading.Thread(target=self._kill_broker, args=(self._dice.uniform(*AWAY_S),))
            away.start()
            go_on()
            away.join()
        self._target.happened.set()

    @staticmethod
    def _go_on(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended meanwhile
            process.stdin.write("\n")
            process.stdin.flush()

    def finish(self) -> None:
        self._ends.set()
        while self._thread.is_alive():
            if self._process is not None:
                self._process.kill()
            self._thread.join(0.1)


class Lane:
    """Numbers, and copiers of one library that take them to another topic."""

    def __init__(
        self,
        library: str,
        bootstrap: str,
        target: Target,
        kill_broker: Callable[[float], None],
        dice: random.Random,
    ) -> None:
        self.library = library
        self._bootstrap = bootstrap
        self._source, self._target = f"orders-{library}", f"invoices-{library}"
        self._group = f"biller-{library}"
        world.create(bootstrap, self._source, self._target)
        self.numbers = Numbers(bootstrap, self._source)
        self.copiers = [
            Copying(
                library,
                (bootstrap, f"{library}-{number}", self._group, self._source, self._target),
                target,
                kill_broker,
                dice,
            )
            for number in range(COPIERS[library])
        ]
        self.numbers.start()

    @property
    def committed(self) -> int:
        """Transactions that copiers have reported."""
        return sum(each.committed for each in self.copiers)

    @property
    def ended_by_errors(self) -> int:
        return sum(each.ended_by_errors for each in self.copiers)

    def goes_on(self) -> None:
        before = self.committed
        world.until(lambda: self.committed > before, f"{self.library} goes on", GOES_ON_S)

    def finish(self) -> list[str]:
        """Violations, when all of the input is copied and nothing runs any more."""
        written = self.numbers.finish()
        ends = world.ends_of(self._bootstrap, self._source)
        world.until(lambda: self._offsets() == ends, f"{self.library} has copied all")
        self.stop()
        topics = self._source, self._target
        opened, at_the_end = world.settled(self._bootstrap, topics)
        return [
            *(fault for each in self.copiers for fault in each.faults),
            *each_once(written, world.read(self._bootstrap, self._target)),
            *nothing_open(opened, at_the_end),
            *all_committed(ends, self._offsets()),
        ]

    def _offsets(self) -> dict[int, int]:
        return world.committed(self._bootstrap, self._source, self._group)

    def stop(self) -> None:
        self.numbers.give_up()
        for each in self.copiers:
            each.finish()


def plan(library: str, rounds: int, dice: random.Random) -> list[Kill]:
    """Every kill as often as any other."""
    kills: list[Kill] = []
    for _ in range(rounds):
        every = every_kill(library)
        dice.shuffle(every)
        kills += every
    return kills
