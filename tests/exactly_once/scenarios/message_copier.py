"""Apache Kafka's own copier of its system tests, TransactionalMessageCopier, unchanged: several of
them copy one topic, abort transactions by dice, and are killed, and so is the broker.

Each has a partition to itself, or they are members of one group. A copier ends where its partitions
ended when it began, so it is started again until there is no more input.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from kbroker.testing.process import ServerProcess
from tests.exactly_once import world
from tests.exactly_once.checker import all_committed, each_once, nothing_open
from tests.exactly_once.world import OUTPUT, PARTITIONS, Numbers
from tests.support import kafka_classes

MAIN: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
INPUT: Final = "orders"
GROUP: Final = "copiers"
RATE: Final = 1_000  # records a second
# A copier that was killed between offsets and commit looks, when it begins again, for its offsets
# first, and so waits until its own transaction has timed out.
TRANSACTION_MS: Final = 5_000
SIZE: Final = 20  # records of a transaction
ALONE: Final = ()
TOGETHER: Final = ("--group-mode", "--use-group-metadata")
PARTIES: Final = ("copier", "broker")
WITHIN_S: Final = (0.0, 0.05)  # of an end of a transaction: one takes some 20 ms
GOES_ON_S: Final = 90.0  # a member that was killed is missed after 10 s
ENDS_S: Final = 30.0


class Copier(threading.Thread):
    """One of them, started again whenever it has ended."""

    def __init__(self, bootstrap: str, number: int, words: Sequence[str]) -> None:
        super().__init__(name=f"copier-{number}")
        self._command = kafka_classes.command(
            MAIN, "--broker-list", bootstrap,
            "--input-topic", INPUT, "--input-partition", str(number), "--output-topic", OUTPUT,
            "--consumer-group", GROUP, "--transactional-id", self.name,
            "--transaction-size", str(SIZE), "--transaction-timeout", str(TRANSACTION_MS),
            "--enable-random-aborts", *words, log="off",
        )  # fmt: skip
        self._ends = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self.statuses: Counter[int] = Counter()
        self.transactions = 0  # that were committed or aborted, where it could say so
        self.start()

    def run(self) -> None:
        while not self._ends.is_set():
            with subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process:
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    self._note(line)
            self.statuses[process.returncode] += 1

    def _note(self, line: str) -> None:
        """A line of JSON at its start, after each transaction, and at its end."""
        with suppress(ValueError):
            self.transactions += json.loads(line)["consumed"] > 0

    def kill(self) -> bool:
        """Whether that is what ended it."""
        process = self._process
        if process is None:
            return False
        process.kill()
        return process.wait() == -signal.SIGKILL

    def end(self) -> None:
        """It ends by itself where there is no more input."""
        self._ends.set()
        self.join(ENDS_S)
        self.close()

    def close(self) -> None:
        self._ends.set()
        while self.is_alive():
            self.kill()
            self.join(0.1)


class Copiers:
    def __init__(self, server: ServerProcess, words: Sequence[str], dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self.kills: Counter[str] = Counter()
        self.all = [Copier(server.bootstrap, number, words) for number in range(PARTITIONS)]

    def kill(self, party: str) -> None:
        copier = self._dice.choice(self.all)
        self._until_it_copies(copier)
        if party == "broker":
            self._server.kill9()
            self._server.start()
        else:
            while not copier.kill():
                self._until_it_copies(copier)
        self.kills[party] += 1
        self.go_on()

    def _until_it_copies(self, copier: Copier) -> None:
        before = copier.transactions
        world.until(lambda: copier.transactions > before, f"{copier.name} copies", GOES_ON_S)
        # Not synchronisation: the dice say in which step of a transaction it is killed.
        time.sleep(self._dice.uniform(*WITHIN_S))

    def go_on(self) -> None:
        """Each partition's input of the time of this call is copied."""
        wanted = world.ends_of(self._server.bootstrap, INPUT)
        world.until(
            lambda: all(self.offsets().get(each, 0) >= end for each, end in wanted.items()),
            "all copiers go on",
            GOES_ON_S,
        )

    def offsets(self) -> dict[int, int]:
        return world.committed(self._server.bootstrap, INPUT, GROUP)

    def close(self) -> None:
        for each in self.all:
            each.close()


def run(dice: random.Random, say: Callable[[str], None], rounds: int = 2) -> list[str]:
    return [line for words in (ALONE, TOGETHER) for line in _copy(dice, say, rounds, words)]


def _copy(
    dice: random.Random, say: Callable[[str], None], rounds: int, words: Sequence[str]
) -> list[str]:
    mode = "together" if words else "alone"
    with world.one_broker() as server, ExitStack() as running:
        world.create(server.bootstrap, INPUT, OUTPUT)
        numbers = Numbers(server.bootstrap, INPUT, RATE)
        running.callback(numbers.give_up)
        numbers.start()
        copiers = Copiers(server, words, dice)
        running.callback(copiers.close)
        for _ in range(rounds):
            for party in PARTIES:
                began_s = time.monotonic()
                copiers.kill(party)
                say(f"copier: {mode}, {party} killed, {time.monotonic() - began_s:.1f} s")
        written = numbers.finish()
        ends = world.ends_of(server.bootstrap, INPUT)
        copiers.go_on()
        for each in copiers.all:
            each.end()
        opened, at_the_end = world.settled(server.bootstrap, [INPUT, OUTPUT])
        statuses = sum((each.statuses for each in copiers.all), Counter())
        say(
            f"copier: {mode}, {numbers.sent:,} records, kills {dict(copiers.kills)},"
            f" {sum(each.transactions for each in copiers.all):,} transactions,"
            f" copiers ended with {dict(statuses)}"
        )
        return [
            *each_once(written, world.read(server.bootstrap, OUTPUT)),
            *nothing_open(opened, at_the_end),
            *all_committed(ends, copiers.offsets()),
        ]
