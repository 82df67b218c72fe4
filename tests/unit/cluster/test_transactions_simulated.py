"""The whole machine under seeds: two producers of one transactional id, of which one is a zombie,
partitions, markers and coordinators that fail over between each pair of writes.

Real are the coordinator, its decisions and records, and the markers; the log of the state topic,
the partitions and the network are models that lose, double and delay. Requests arrive late by a
whole transaction, or twice; responses are lost; a write may be in the log although its coordinator
was answered with an error; a partition refuses a marker for a while, or writes it and says that it
did not. A producer id has three epochs. At the end all is healed, and transactions time out.

Checked at each step: a marker says what a record in the log said before it (I4), a pair is given to
one client and epochs of a producer id grow (I6), an outcome of EndTxn 5 gives a new pair, and
Complete* has a marker in each partition of its outcome. Checked at the end: nothing hangs (I7), an
outcome that a client was answered with is that of all its records (I1, I9), and a record is covered
by the marker of its own transaction (I2). Faults that are planted in the machine are found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pytest

from kbroker.clock import ManualClock
from kbroker.cluster.transaction_markers import TransactionMarkers
from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn import image as images
from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.image import NO_PAIR, Limits, Pair, TransactionImage
from kbroker.coordinator.txn.records import decode_value
from kbroker.coordinator.txn.seams import Done, MarkerOrder
from kbroker.coordinator.txn.states import PREPARED, State
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ZERO_UUID, BrokerImage, ClusterImage
from kbroker.types import TopicPartition

ID: Final = "pay"
PLACES: Final = tuple(TopicPartition("t", index) for index in range(3))
NONE: Final = ErrorCode.NONE
SEEDS: Final = range(160)
STEPS: Final = 2_000
TIMEOUT_MS: Final = 1_000
EPOCH_MAX: Final = 3
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class ViolationError(BaseException):
    """Of an invariant; nothing in the machine catches it."""


def require(holds: bool, words: str) -> None:
    if not holds:
        raise ViolationError(words)


class Entry(NamedTuple):
    """Of a partition: records of a client's transaction, or a marker."""

    pair: Pair
    transaction: int | None  # which of all clients'; None: a marker
    committed: bool = False
    raises: bool = False  # the transaction ends by EndTxn 5


class Partition:
    """A leader with its rules for epochs and markers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}
        self.open: dict[int, int] = {}  # producer id: epoch

    def accepts(self, pair: Pair) -> bool:
        return pair.epoch >= self.epochs.get(pair.producer_id, 0)

    def append(self, pair: Pair, transaction: int, raises: bool) -> bool:
        if not self.accepts(pair):
            return False
        self.epochs[pair.producer_id] = self.open[pair.producer_id] = pair.epoch
        self.entries.append(Entry(pair, transaction, raises=raises))
        return True

    def mark(self, order: MarkerOrder) -> ErrorCode:
        pair = Pair(order.producer_id, order.epoch)
        known = self.epochs.get(pair.producer_id, -1)
        is_open = pair.producer_id in self.open
        too_old = pair.epoch < known or (order.version == 2 and is_open and pair.epoch == known)
        if too_old:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if order.coordinator_epoch < self.coordinators.get(pair.producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        self.coordinators[pair.producer_id] = order.coordinator_epoch
        self.epochs[pair.producer_id] = pair.epoch
        self.open.pop(pair.producer_id, None)
        self.entries.append(Entry(pair, None, order.committed))
        return NONE


class Client:
    """A producer: one request at a time, until it is fenced; then a new process takes its place."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.world = world
        self.name = name
        self.version = version
        self.pair = NO_PAIR
        self.stage = "init"
        self.number = 0
        self.committed = True
        self.places: list[TopicPartition] = []
        self.waits = False
        self.turn = 0  # a response of an earlier one is no more waited for

    def step(self) -> None:
        """The next request, or the same once more: its response may be lost or late."""
        if self.waits and self.world.dice.random() < 0.8:
            return
        self.waits = self.stage != "begin"
        self.turn += 1
        turn, world = self.turn, self.world
        coordinator = world.coordinator
        if self.stage == "init":
            world.send(lambda: coordinator().init_producer_id(
                ID, TIMEOUT_MS, NO_PAIR, lambda *answer: self._pair(turn, self._given, *answer)
            ))  # fmt: skip
        elif self.stage == "begin":
            self.number = world.begin()
            self.committed = world.dice.random() < 0.6
            self.places = world.dice.sample(PLACES, world.dice.randrange(1, 3))
            self.stage = "add"
        elif self.stage == "add":
            pair, places = self.pair, frozenset(self.places)
            world.send(lambda: coordinator().add_partitions(
                ID, pair, places, self.version, lambda code: self._reply(turn, self._added, code)
            ))  # fmt: skip
        elif self.stage == "write":
            self._write(turn)
        else:
            pair, committed = self.pair, self.committed

            def answered(code: ErrorCode, after: Pair) -> None:
                raised = bool(code) or self.version != 2 or after != pair
                require(raised, f"I2: {pair} goes on after its outcome")
                self._pair(turn, self._ended, code, after)

            world.send(lambda: coordinator().end(
                ID, pair, self.version, answered, committed=committed
            ))  # fmt: skip

    def _pair(self, turn: int, take: Callable[..., None], code: ErrorCode, pair: Pair) -> None:
        self.world.give(code, pair, self)
        self._reply(turn, take, code, pair)

    def _reply(self, turn: int, take: Callable[..., None], *answer: Any) -> None:
        def arrives() -> None:
            if turn == self.turn:
                self.waits = False
                take(*answer)

        self.world.reply(arrives)

    def _given(self, code: ErrorCode, pair: Pair) -> None:
        if not code:
            self.pair = pair
            self.stage = "begin"

    def _added(self, code: ErrorCode) -> None:
        if not code:
            self.stage = "write"
        elif code not in AGAIN:
            self._start_anew()

    def _write(self, turn: int) -> None:
        """One batch to one partition, which its leader verifies first."""
        pair, number, place = self.pair, self.number, self.places[0]
        world = self.world

        def arrives() -> None:
            partition = world.partitions[place]
            if not partition.accepts(pair):
                self._reply(turn, self._wrote, place, False)
                return
            verdict = world.coordinator().verify_partitions(ID, pair, [place])
            if isinstance(verdict, ErrorCode) or verdict[place]:
                return  # it is sent again
            done = partition.append(pair, number, self.version == 2)
            self._reply(turn, self._wrote, place, done)

        # A batch is written once: idempotence is not the matter here.
        world.send(arrives, may_double=False, may_be_late=self.version == 2)

    def _wrote(self, place: TopicPartition, done: bool) -> None:
        if not done:
            self._start_anew()
            return
        self.places.remove(place)
        if not self.places:
            self.stage = "end"

    def _ended(self, code: ErrorCode, pair: Pair) -> None:
        if not code:
            self.world.answered[self.number] = self.committed
            self.stage = "begin"
            if self.version == 2:
                self.pair = pair
        elif code not in AGAIN:
            self._start_anew()

    def _start_anew(self) -> None:
        self.stage = "init"
        self.turn += 1


class World:
    """Everything but the clients' state, and the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.level = self.dice.choice((0, 2))
        self.partitions = {place: Partition() for place in PLACES}
        self.records: list[TransactionImage] = []  # in the log of the state topic
        self.outcome_since: dict[TopicPartition, int] = {}  # entries before the last outcome
        self.term = 0
        self.writes: list[tuple[int, TransactionImage, Done]] = []
        self.mail: list[Callable[[], None]] = []
        self.timers: list[Callable[[], object]] = []
        self.given: dict[Pair, Client] = {}
        self.highest: dict[int, int] = {}
        self.answered: dict[int, bool] = {}
        self.transactions = 0
        self.producer_ids = 1_000
        self.healed = False
        topic = new_topic_image("t", ZERO_UUID, [(1,), (2,), (2,)], {})
        brokers = [BrokerImage(1), BrokerImage(2)]
        self.image = ClusterImage().with_topics([topic]).with_brokers(brokers)
        self.failures = Failures("simulated")
        self.current: TransactionCoordinator
        self._fail_over()
        versions = self.dice.choice(((0, 0), (2, 2), (0, 2)))
        self.clients = [
            Client(self, name, version) for name, version in zip("ab", versions, strict=True)
        ]

    # --- what clients see -------------------------------------------------------------------------

    def coordinator(self) -> TransactionCoordinator:
        return self.current

    def begin(self) -> int:
        self.transactions += 1
        return self.transactions

    def give(self, code: ErrorCode, pair: Pair, client: Client) -> None:
        """A coordinator answers, whether that arrives or not."""
        if code or pair == NO_PAIR:
            return
        require(self.given.setdefault(pair, client) is client, f"I6: {pair} was given twice")
        require(pair.epoch < EPOCH_MAX, f"I6: {pair} was given")
        highest = self.highest.setdefault(pair.producer_id, pair.epoch)
        require(pair.epoch >= highest, f"I6: {pair} was given after epoch {highest}")
        self.highest[pair.producer_id] = pair.epoch

    def send(
        self, arrives: Callable[[], None], *, may_double: bool = True, may_be_late: bool = True
    ) -> None:
        roll = 1.0 if self.healed else self.dice.random()
        if roll < 0.08:
            return
        if roll < 0.16 and may_double:
            self.mail.append(arrives)
        if roll < 0.4 and may_be_late:
            self.mail.append(arrives)
        else:
            arrives()

    def reply(self, arrives: Callable[[], None]) -> None:
        if self.healed or self.dice.random() > 0.1:
            arrives()

    # --- the coordinator's parts ------------------------------------------------------------------

    def state_of(self, transactional_id: str) -> ErrorCode:
        return NONE

    def _parts(self, term: int) -> TransactionCoordinator:
        world = self

        class Log:
            """As the coordinator of this term has it."""

            def state_of(self, _: str) -> ErrorCode:
                return NONE if term == world.term else ErrorCode.NOT_COORDINATOR

            is_loading = False

            def partition_of(self, _: str) -> int:
                return 0

            def term_of(self, _: str) -> int:
                return term

            def coordinator_epoch(self, _: str, of: int) -> int:
                return term if of == world.term else -1

            def write(self, _: str, of: int, image: TransactionImage, done: Done) -> None:
                if of != world.term:
                    done(ErrorCode.NOT_COORDINATOR)
                else:
                    world.writes.append((of, image, done))

            def forget(self, names: Sequence[str], of: int, done: Done) -> None:
                raise AssertionError("no id is unused for so long")

        class Transport:
            """To the other broker: markers that are lost, late, or written without an answer."""

            def send(
                self, node_id: int, markers: Sequence[Any], done: Callable[..., None], *, slow: bool
            ) -> None:
                def arrives() -> None:
                    outcome = {
                        (each.order.producer_id, place): world.mark(each.order, place)
                        for each in markers
                        for place in each.partitions
                    }
                    done(outcome if world.healed or world.dice.random() > 0.2 else None)

                roll = 1.0 if world.healed else world.dice.random()
                if roll < 0.15:
                    done(None)
                elif roll < 0.5:
                    world.mail.append(arrives)
                else:
                    arrives()

        markers = TransactionMarkers(
            1, lambda: self.image, lambda order, place, done: done(self.mark(order, place)),
            Transport(), self._call_later, self.failures,
        )  # fmt: skip
        return TransactionCoordinator(
            lambda: {"transaction.max.timeout.ms": 900_000}, self.clock, self._call_later, Log(),
            markers, self._generate, lambda: self.level, Limits(EPOCH_MAX), self.failures,
        )  # fmt: skip

    def _generate(self, done: Callable[[int], None]) -> None:
        self.producer_ids += 1
        done(self.producer_ids)

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        self.timers.append(call)
        return lambda: None

    def mark(self, order: MarkerOrder, place: TopicPartition) -> ErrorCode:
        state = State.PREPARE_COMMIT if order.committed else State.PREPARE_ABORT
        pair = Pair(order.producer_id, order.epoch)
        found = any(
            each.state is state and each.pair == pair and place in each.partitions
            for each in self.records
        )
        require(found, f"I4: a marker of {order} in {place} without a record")
        roll = 1.0 if self.healed else self.dice.random()
        if roll < 0.1:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        code = self.partitions[place].mark(order)
        return ErrorCode.REQUEST_TIMED_OUT if roll < 0.15 and not code else code

    # --- faults -----------------------------------------------------------------------------------

    def settle_write(self) -> None:
        """The first write: in the log or not, and with its answer or without."""
        if not self.writes:
            return
        _, image, done = self.writes.pop(0)
        roll = 1.0 if self.healed else self.dice.random()
        if roll < 0.06:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._append(image)
        done(ErrorCode.COORDINATOR_NOT_AVAILABLE if roll < 0.1 else NONE)

    def _append(self, image: TransactionImage) -> None:
        if image.state in PREPARED:
            self.outcome_since = {place: len(self.partitions[place].entries) for place in PLACES}
        elif image.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            self._check_markers(image, self.records[-1])
        self.records.append(image)

    def _check_markers(self, image: TransactionImage, outcome: TransactionImage) -> None:
        if (outcome.state, outcome.pair) == (image.state, image.pair):
            return  # it was in the log, and its coordinator did not know
        require(outcome.state in PREPARED, f"I4: {outcome} was completed")
        for place in outcome.partitions:
            marker = Entry(outcome.pair, None, outcome.state is State.PREPARE_COMMIT)
            written = self.partitions[place].entries[self.outcome_since[place] :]
            require(marker in written, f"I7: {outcome} was completed without a marker in {place}")

    def fail_over(self) -> None:
        """Some of the writes that wait are in the log of the next leader, the first ones."""
        for _, image, _ in self.writes[: self.dice.randrange(len(self.writes) + 1)]:
            self._append(image)
        self.writes.clear()
        self._fail_over()

    def _fail_over(self) -> None:
        self.term += 1
        if self.term > 1:
            self.current.close()
        self.current = self._parts(self.term)
        if self.records:
            loaded = decode_value(encode_value(self.records[-1], 1))
            self.current.load({ID: loaded}, self.term)
            self.current.complete_loaded([ID], self.term)

    def deliver(self) -> None:
        if self.mail:
            self.mail.pop(self.dice.randrange(len(self.mail)))()

    def run_timers(self) -> None:
        timers, self.timers = self.timers, []
        for call in timers:
            call()

    def look(self) -> None:
        self.clock.advance(self.dice.choice((1, 100, 1_500)))
        for _ in self.current.abort_timed_out():
            pass

    def step(self) -> None:
        roll = self.dice.random()
        if roll < 0.5:
            self.dice.choice(self.clients).step()
        elif roll < 0.75:
            self.settle_write()
        elif roll < 0.88:
            self.deliver()
        elif roll < 0.98:
            self.run_timers()
        elif roll < 0.99:
            self.look()
        else:
            self.fail_over()

    def heal(self) -> None:
        """All arrives, clients are gone, and transactions time out."""
        self.healed = True
        for client in self.clients:
            client.turn += 1
        for _ in range(60):
            while self.mail or self.writes:
                self.deliver()
                self.settle_write()
            self.run_timers()
            self.clock.advance(2 * TIMEOUT_MS)
            for _ in self.current.abort_timed_out():
                pass

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        image = self.current.find(ID)
        if image is not None:
            done = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            require(image.state in done, f"I7: {image}")
        for place, partition in self.partitions.items():
            require(not partition.open, f"I7: {partition.open} hang in {place}")
            self._check_records(place, partition.entries)

    def _check_records(self, place: TopicPartition, entries: Sequence[Entry]) -> None:
        """Each record goes by the next marker of its producer."""
        next_marker: dict[int, Entry] = {}
        for each in reversed(entries):
            producer_id, epoch = each.pair
            if each.transaction is None:
                next_marker[producer_id] = each
                continue
            marker = next_marker[producer_id]
            committed = self.answered.get(each.transaction, marker.committed)
            require(marker.committed is committed, f"I1, I9: {each} in {place}")
            if each.raises:
                require(marker.pair.epoch == epoch + 1, f"I2: {each} in {place} has {marker}")


def run(seed: int) -> World:
    world = World(seed)
    try:
        for _ in range(STEPS):
            world.step()
        world.heal()
        world.check()
    except ViolationError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    assert world.failures.count == 0
    return world


@pytest.mark.parametrize("part", range(8))
def test_two_producers_of_an_id_and_coordinators_that_fail_over(part: int) -> None:
    ended = sum(len(run(seed).answered) for seed in SEEDS[part::8])
    assert ended > 100  # or it says nothing


def errors_are_taken_for_written(plant: pytest.MonkeyPatch) -> None:
    answered = TransactionMarkers._answered
    plant.setattr(
        TransactionMarkers, "_answered",
        lambda markers, sending, place, code, may_wait: answered(
            markers, sending, place, NONE, may_wait
        ),
    )  # fmt: skip


def outcomes_do_not_raise(plant: pytest.MonkeyPatch) -> None:
    """As if EndTxn 5 were EndTxn 4, but for its answer."""
    prepared = images.prepared
    plant.setattr(
        images, "prepared",
        lambda image, to, version, *rest: prepared(image, to, 0, *rest),
    )  # fmt: skip


def markers_come_before_the_outcome(plant: pytest.MonkeyPatch) -> None:
    write = TransactionCoordinator._write

    def marks_first(self: Any, name: str, transaction: Any, image: Any, done: Done) -> None:
        if image.state in PREPARED:
            self._outcomes.mark(name, transaction, image, may_wait=True)
        write(self, name, transaction, image, done)

    plant.setattr(TransactionCoordinator, "_write", marks_first)


def a_write_under_way_is_forgotten(plant: pytest.MonkeyPatch) -> None:
    cell = decisions._cell
    plant.setattr(
        decisions, "_cell", lambda image, event, pending: cell(image, event, pending=False)
    )


def a_load_completes_nothing(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(TransactionCoordinator, "complete_loaded", lambda *how: None)


def a_fence_does_not_raise(plant: pytest.MonkeyPatch) -> None:
    fenced = images.fenced
    plant.setattr(images, "fenced", lambda *how, **more: fenced(*how, **(more | {"raised": True})))


@pytest.mark.parametrize(
    "plant_fault",
    [
        errors_are_taken_for_written, outcomes_do_not_raise, markers_come_before_the_outcome,
        a_write_under_way_is_forgotten, a_load_completes_nothing, a_fence_does_not_raise,
    ],
    ids=lambda fault: fault.__name__,
)  # fmt: skip
def test_a_planted_fault_is_found(
    plant_fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_fault(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed \d+"):
        for seed in range(5):
            run(seed)
