"""Flink's way: a process writes and flushes, a checkpoint keeps producer id and epoch, and another
process ends the transaction by them, again and again until the answer is that it has ended.

Each transaction has an id of its own. Writer, ender and broker are killed between the steps, the
broker and the ender while a transaction ends, too. A committed one is read once, in each partition
in the order of the commits; an aborted one, and one whose checkpoint was lost, is never read.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

from kbroker.testing.process import ServerProcess
from tests.clients.agents.programs import program
from tests.exactly_once import world
from tests.exactly_once.checker import each_once, none_aborted, nothing_open
from tests.exactly_once.world import OUTPUT, PARTITIONS
from tests.support import kafka_classes
from tests.support.source_tree import ROOT

COMMIT: Final = "commit"
ABORT: Final = "abort"
FORGOTTEN: Final = "forgotten"  # the checkpoint is lost: the next start aborts by the id
OUTCOMES: Final = (COMMIT, COMMIT, COMMIT, ABORT, FORGOTTEN)
TRIES_MAX: Final = 5
WITHIN_S: Final = (0.0, 0.02)
# Errors that Flink takes for the end of a transaction that had ended before.
ENDED_BEFORE: Final = ("InvalidTxnStateException", "ProducerFencedException")


class Ended(Exception):
    """The process has ended before it answered."""


class Resumed:
    """The program, started when it is asked and does not run."""

    def __init__(self, bootstrap: str) -> None:
        self._command = kafka_classes.command(
            "Resumed", bootstrap, OUTPUT, classes=program("java"), log="off"
        )
        self._process: subprocess.Popen[str] | None = None

    def ask(self, *words: str) -> list[str]:
        """The words of its answer; Ended where it is killed before."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline().split()
        if not answer:
            process.wait()
            raise Ended
        return answer

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


class Checkpoints:
    """Transactions, one after the other."""

    def __init__(self, server: ServerProcess, dice: random.Random, *, kills: bool) -> None:
        self._server = server
        self._dice = dice
        self._kills = kills
        self.writer, self.ender = Resumed(server.bootstrap), Resumed(server.bootstrap)
        self.committed: world.Values = {partition: [] for partition in range(PARTITIONS)}
        self.aborted: list[bytes] = []
        self.faults: list[str] = []
        self.kills = self.tries = 0

    def one(self, number: int, outcome: str) -> None:
        id = f"sink-{number}"
        values = [f"{number}-{place}" for place in range(PARTITIONS)]
        answer = self._opened(id, values)
        if answer is None:
            outcome = FORGOTTEN
        self._kill_something()
        if outcome == FORGOTTEN:
            self._ended("init", id)
        else:
            assert answer is not None
            self._ended(outcome, id, *answer)
        if outcome == COMMIT:
            for place, value in enumerate(values):
                self.committed[place].append(value.encode())
        else:
            self.aborted += [value.encode() for value in values]

    def _opened(self, id: str, values: list[str]) -> list[str] | None:
        """Producer id and epoch, unless the writer is killed before it has answered."""
        killed = self._kills and self._dice.random() < 0.1
        kill = self._later(self.writer.kill) if killed else None
        try:
            said, *answer = self.writer.ask("open", id, *values)
        except Ended:
            return None
        finally:
            if kill is not None:
                kill.join()
        assert said == "ok", answer
        return answer

    def _ended(self, *words: str) -> None:
        """Ask until an answer says that it is so."""
        for turn in range(TRIES_MAX):
            self.tries += 1
            kill = self._later(self._kill_at_the_end) if self._kills and turn == 0 else None
            try:
                said, *answer = self.ender.ask(*words)
            except Ended:
                continue
            finally:
                if kill is not None:
                    kill.join()
            if said == "ok":
                return
            if turn > 0 and answer[0] in ENDED_BEFORE:
                return  # an earlier try has ended it
        self.faults.append(f"{' '.join(words)}: {answer}")

    def _later(self, act: Callable[[], None]) -> threading.Thread:
        def wait() -> None:
            time.sleep(self._dice.uniform(*WITHIN_S))
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def _kill_something(self) -> None:
        if not self._kills:
            return
        chosen = self._dice.choice((None, None, self.writer.kill, self._kill_broker))
        if chosen is not None:
            self.kills += 1
            chosen()

    def _kill_at_the_end(self) -> None:
        chosen = self._dice.choice((None, None, self.ender.kill, self._kill_broker))
        if chosen is not None:
            self.kills += 1
            chosen()

    def _kill_broker(self) -> None:
        self._server.kill9()
        self._server.start()


def run(
    dice: random.Random, say: Callable[[str], None], transactions: int = 60, *, kills: bool = True
) -> list[str]:
    with world.one_broker() as server, ExitStack() as running:
        world.create(server.bootstrap, OUTPUT)
        all_of_it = Checkpoints(server, dice, kills=kills)
        running.callback(all_of_it.writer.kill)
        running.callback(all_of_it.ender.kill)
        for number in range(transactions):
            all_of_it.one(number, OUTCOMES[number % len(OUTCOMES)])
        opened, ends = world.settled(server.bootstrap, [OUTPUT])
        found = world.read(server.bootstrap, OUTPUT)
        say(
            f"resumed: {transactions} transactions, {all_of_it.kills} kills,"
            f" {all_of_it.tries} ends were asked for"
        )
        return [
            *all_of_it.faults,
            *each_once(all_of_it.committed, found),
            *none_aborted(all_of_it.aborted, found),
            *nothing_open(opened, ends),
        ]
