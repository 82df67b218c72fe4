"""Handlers in C and threads in Python at the same transactional ids, at the same time.

Producers of both kinds commit and abort; each now and then asks for a new epoch, while its
transaction may be open or its outcome under way. Another thread aborts what is open for long, with
a timeout that is over at once for some, and now and then loads a partition of the ids again. At the
end all is over, and the logs say what the memory says.
"""

from __future__ import annotations

import itertools
import queue
import random
import threading
from pathlib import Path
from typing import Any

from kbroker.coordinator.txn.image import NO_PAIR, Pair
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from tests.unit.engine.coordinated import (
    END,
    PARTITIONS,
    STATE_PARTITIONS,
    Coordinated,
    error_of_end,
    produced,
)
from tests.unit.net.harness import Client, Rig, framed, header, running

TRANSACTIONS = 40
PRODUCERS = 6
LOADS_EVERY = 20
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Producer(threading.Thread):
    def __init__(self, world: Coordinated, number: int) -> None:
        super().__init__(name=f"producer-{number}")
        self.world = world
        self.dice = random.Random(number)
        self.id = f"pay-{number}"
        self.raises = number % 2 == 0
        self.client: Client = world.rig.client()
        self.pair = NO_PAIR
        self.error: BaseException | None = None
        self.ended = 0

    def run(self) -> None:
        try:
            self._begin_anew()
            while self.ended < TRANSACTIONS:
                self._transaction()
        except BaseException as error:
            self.error = error

    def _begin_anew(self) -> None:
        timeout_ms = self.dice.choice((1, 60_000, 60_000))
        while True:
            answered: queue.SimpleQueue[tuple[ErrorCode, Pair]] = queue.SimpleQueue()
            self.world.coordinator.init_producer_id(
                self.id, timeout_ms, NO_PAIR, lambda *answer, to=answered: to.put(answer)
            )
            code, self.pair = answered.get()
            if code is ErrorCode.NONE:
                self.world.remember(self.id)
                return
            assert code in AGAIN, code

    def _transaction(self) -> None:
        topics = {"orders": self.dice.sample(range(PARTITIONS), self.dice.randrange(1, PARTITIONS))}
        if not self.raises:
            self.world.add(3, self.pair, topics, name=self.id, client=self.client)
        version = 12 if self.raises else 11
        self.client.send(self.world.produce_frame(version, self.pair, topics, name=self.id))
        errors = {ErrorCode(each.error) for each in produced(version, self.client)}
        if errors - {ErrorCode.NONE} or self.dice.random() < 0.2:
            self._begin_anew()  # which aborts it
            return
        version = 5 if self.raises else 4
        committed = self.dice.random() < 0.6
        body = self.world.end_body(version, self.pair, committed, name=self.id)
        while True:
            self.client.send(framed(header(END, version, 7) + body))
            code = error_of_end(self.world.answer(END, version, self.client))
            if code not in AGAIN:
                break
        self.ended += 1
        self._begin_anew()  # the sequence begins with 0


def test_producers_in_c_and_in_python(tmp_path: Path) -> None:
    with running(tmp_path, handlers=4) as rig:
        _play(rig)


def _play(rig: Rig) -> None:
    world = Coordinated(rig)
    producers = [Producer(world, number) for number in range(PRODUCERS)]
    over = threading.Event()

    def sweep() -> None:
        for look in itertools.count(1):
            if over.is_set():
                return
            for _ in world.coordinator.abort_timed_out():
                pass
            world.run_later()
            if look % LOADS_EVERY == 0:
                world.load_again(look // LOADS_EVERY % STATE_PARTITIONS)

    sweeper = threading.Thread(target=sweep)
    for thread in (*producers, sweeper):
        thread.start()
    for thread in producers:
        thread.join()
        assert thread.error is None, thread.error
    over.set()
    sweeper.join()
    ends = rig.hot.statistics()["transaction_ends"]
    assert ends > PRODUCERS, "C has served some"
    for each in producers:
        each._begin_anew()  # ends what is open
        image = world.image(each.id)
        assert image is not None and image.state is State.EMPTY
        assert not world.is_pending(each.id)
        assert world.replayed()[each.id] == image._replace(last_epoch=-1)
    for index in range(PARTITIONS):
        covered(world.contents("orders", index))
        log = world.log("orders", index)
        assert log.last_stable_offset == log.log_end_offset


def covered(contents: list[tuple[Any, ...]]) -> None:
    """A producer's batches and markers: no epoch falls, each transaction ends with a marker."""
    last: dict[int, tuple[int, bool]] = {}
    for _, producer_id, epoch, _, transactional, control, _ in contents:
        assert transactional
        before, _ = last.get(producer_id, (-1, True))
        assert epoch >= before
        last[producer_id] = (epoch, control)
    assert all(is_marker for _, is_marker in last.values())
