"""Transactional ids in real logs: written, loaded by the next leader, and given up."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.runtime._shard_table import ShardTable, partition_for
from kbroker.coordinator.runtime.loader import AGAIN_MS, Loader
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.image import NO_PAIR, Pair
from kbroker.coordinator.txn.machine import TransactionMachine
from kbroker.coordinator.txn.records import encode_key
from kbroker.coordinator.txn.states import State
from kbroker.coordinator.txn.store import TransactionStore
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import TRANSACTIONS_TOPIC, ClusterImage, ImageDelta
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.standing_disk import standing
from tests.unit.coordinator.txn.world import Markers

NODE, ELSEWHERE = 1, 2
TOPIC_ID: Final = uuid.UUID(int=0x78)
COUNT: Final = 2
PAY: Final = "pay"
ORDERS: Final = TopicPartition("orders", 0)
NONE: Final = ErrorCode.NONE


class Node:
    """One broker with the state topic."""

    def __init__(self, path: Path) -> None:
        self.logs = LedLogManager([path])
        self.logs.start()
        self.table = ShardTable(None, any_size=True, base_sequence=-1)
        self.published: list[tuple[int, Callable[[], object]]] = []
        self.machine = TransactionMachine(self.table, lambda *work: self.published.append(work))
        self.clock = clock = ManualClock()
        self.loader = Loader(self.table, self.machine, clock, buffer_bytes=1 << 20)
        self.open: dict[int, LedLog] = {}
        self.store = TransactionStore(
            self.table, self.loader, lambda _, index: self.open.get(index), NODE, lambda: 2
        )
        self.markers = Markers()
        ids = itertools.count(1_000)
        config: dict[str, Any] = {"transaction.max.timeout.ms": 900_000}
        self.coordinator = TransactionCoordinator(
            lambda: config, clock, lambda delay_ms, call: lambda: None, self.store, self.markers,
            lambda done: done(next(ids)), lambda: 2,
        )  # fmt: skip
        self.machine.attach(self.coordinator)
        self.answers: list[tuple[ErrorCode, Pair]] = []

    def lead(self, *leaders: int, epoch: int = 0, loads: bool = True) -> None:
        first = not self.open
        topic = new_topic_image(TRANSACTIONS_TOPIC, TOPIC_ID, [(each,) for each in leaders], {})
        led = tuple(replace(each, leader_epoch=epoch) for each in topic.partitions)
        topic = replace(topic, partitions=led)
        delta = ImageDelta(created=(topic,)) if first else ImageDelta(changed=(topic,))
        self.store.before(delta)
        for index, leader in enumerate(leaders):
            if index not in self.open:
                self.open[index] = self.logs.open(TRANSACTIONS_TOPIC, index, TOPIC_ID, {})
            self.open[index].set_leadership(leader, leader == NODE, epoch, 1)
        self.store.follow(ClusterImage().with_topics([topic]), delta)
        if loads:
            self.load()

    def load(self) -> None:
        """And publish the image."""
        self.read()
        published, self.published = self.published, []
        for _, call in published:
            call()

    def read(self) -> None:
        for _ in self.loader.work_off():
            pass

    def init(self, name: str = PAY) -> tuple[ErrorCode, Pair]:
        self.coordinator.init_producer_id(
            name, 60_000, NO_PAIR, lambda *answer: self.answers.append(answer)
        )
        return self.answers.pop()

    def add(self, pair: Pair, name: str = PAY) -> ErrorCode:
        codes: list[ErrorCode] = []
        self.coordinator.add_partitions(name, pair, frozenset({ORDERS}), 0, codes.append)
        return codes.pop()

    def end(self, pair: Pair) -> ErrorCode:
        self.coordinator.end(
            PAY, pair, 2, lambda *answer: self.answers.append(answer), committed=True
        )
        return self.answers.pop()[0]

    def stop(self) -> None:
        self.loader.stop()
        self.logs.stop()


Start = Callable[[], Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def make() -> Node:
        if nodes:
            nodes[-1].stop()
        nodes.append(Node(tmp_path / "data"))
        return nodes[-1]

    yield make
    nodes[-1].stop()


def test_ids_are_loaded_before_their_partition_is_active(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE)
    (_, pair), (_, other) = node.init(), node.init("other")
    assert node.add(pair) is node.end(pair) is node.add(other, "other") is NONE
    before = dict(node.coordinator.listings())
    node = start()
    caplog.set_level("INFO")
    node.lead(NODE, NODE, epoch=1)
    after = dict(node.coordinator.listings())
    assert {name: image._replace(last_epoch=-1) for name, image in before.items()} == after
    assert "loaded 1 partitions with 2 transactional ids" in caplog.text


def test_ids_that_are_known_while_partitions_are_loaded(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    node.init()
    assert not node.store.is_loading
    node = start()
    node.lead(NODE, NODE, epoch=6, loads=False)
    assert node.store.is_loading and node.coordinator.is_loading
    term = node.store.term_of(PAY)
    node.load()
    assert not node.store.is_loading
    assert node.loader.times.loads == 1
    assert node.store.coordinator_epoch(PAY, term) == 6
    node.lead(ELSEWHERE, ELSEWHERE, epoch=7)
    node.lead(NODE, NODE, epoch=8)
    assert node.store.coordinator_epoch(PAY, term) == -1
    assert node.store.coordinator_epoch(PAY, node.store.term_of(PAY)) == 8


def test_a_partition_that_is_lost_has_no_epoch_while_a_write_keeps_its_term() -> None:
    """By then its replica may have the epoch of another leader, in which no partition would refuse
    a marker."""
    table: Any = mock.Mock(partition_count=COUNT)
    table.term.return_value = 3
    replica: Any = mock.Mock(leader_epoch=7)
    store = TransactionStore(table, mock.Mock(), lambda *place: replica, NODE, lambda: 2)
    for code, epoch in ((NONE, 7), (ErrorCode.NOT_COORDINATOR, -1)):
        table.state_of.return_value = int(code)
        assert store.coordinator_epoch(PAY, 3) == epoch
    assert store.coordinator_epoch(PAY, 2) == -1


def test_each_record_is_a_batch_of_its_own(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    node.add(pair)
    data = node.open[partition_for(PAY, COUNT)].read(0)
    batches = []
    while data:
        length = 12 + int.from_bytes(data[8:12])
        batches.append(data[:length])
        data = data[length:]
    for batch in batches:
        assert int.from_bytes(batch[21:23]) == 0  # attributes: no codec
        assert int.from_bytes(batch[43:51], signed=True) == -1  # producer id
        assert int.from_bytes(batch[53:57], signed=True) == -1  # base sequence
        assert int.from_bytes(batch[57:61]) == 1  # records
    assert len(batches) == 2


def test_an_outcome_that_is_loaded_is_completed_once_its_partition_is_active(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    node.add(pair)
    node.markers.holds = True
    assert node.end(pair) is NONE
    node = start()
    node.lead(NODE, NODE, epoch=4)
    (order,) = node.markers.orders
    assert (order.coordinator_epoch, order.committed, order.epoch) == (4, True, 1)
    assert node.coordinator.find(PAY).state is State.COMPLETE_COMMIT  # type: ignore[union-attr]


def test_an_outcome_is_completed_when_the_image_is_published(start: Start) -> None:
    """In an older one a topic that is new counts as deleted. What is lost by then is another
    coordinator's."""
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    node.add(pair)
    node.markers.holds = True
    assert node.end(pair) is NONE
    node = start()
    node.lead(NODE, NODE, epoch=4, loads=False)
    node.read()
    ((partition, complete),) = node.published
    assert partition == partition_for(PAY, COUNT) and not node.markers.orders
    assert node.coordinator.describe(PAY).state is State.PREPARE_COMMIT  # type: ignore[union-attr]
    node.lead(ELSEWHERE, ELSEWHERE, epoch=5)
    node.lead(NODE, NODE, epoch=6, loads=False)
    node.read()
    complete()
    assert not node.markers.orders
    node.load()
    (order,) = node.markers.orders
    assert order.coordinator_epoch == 6


def test_an_outcome_is_completed_though_its_completion_could_not_begin_at_first(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    node.add(pair)
    node.markers.holds = True
    assert node.end(pair) is NONE
    node = start()
    with monkeypatch.context() as patched:
        patched.setattr(node.machine, "_when_published", no_memory)
        node.lead(NODE, NODE, epoch=4)
    assert not node.markers.orders
    node.clock.advance(AGAIN_MS)
    node.load()
    (order,) = node.markers.orders
    assert order.coordinator_epoch == 4


def no_memory(*_: object) -> None:
    raise MemoryError


def test_records_that_this_broker_does_not_know_or_cannot_read(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    place = partition_for(PAY, COUNT)
    for key, value in (
        (b"\0\x01\0\x03pay", b"\0\0"),  # a key of a version to come
        (encode_key(PAY), b"\0\x07 to come"),
        (encode_key(PAY), b"\0\x01 no value"),
        (b"", b"x"),
    ):
        assert node.table.append(place, [(key, value)]) == NONE
    node = start()
    node.lead(NODE, NODE, epoch=1)
    assert node.add(pair) is NONE
    assert caplog.text.count("is left out") == 2


def test_a_partition_that_is_lost_takes_its_ids_along(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    _, pair = node.init()
    node.lead(ELSEWHERE, ELSEWHERE, epoch=1)
    assert node.add(pair) is ErrorCode.NOT_COORDINATOR
    assert not list(node.coordinator.listings())
    node.lead(NODE, NODE, epoch=2)
    assert node.add(pair) is NONE


def test_ids_are_loaded_again_where_another_broker_may_have_led_in_between(start: Start) -> None:
    """This broker led in epoch 2, leads in epoch 4, and missed the image of epoch 3. The leader of
    that epoch has sent the markers of an outcome, so earlier ones are refused (history 5100984 with
    transactions)."""
    node = start()
    node.lead(NODE, NODE, epoch=1)
    _, pair = node.init()
    node.add(pair)
    node.markers.holds = True
    assert node.end(pair) is NONE
    term = node.store.term_of(PAY)
    node.lead(NODE, NODE, epoch=2)  # no other broker has led in between
    assert node.store.term_of(PAY) == term
    assert [each.coordinator_epoch for each in node.markers.orders] == [1]
    node.lead(NODE, NODE, epoch=4, loads=False)
    assert node.store.state_of(PAY) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.load()
    assert node.store.term_of(PAY) > term
    assert [each.coordinator_epoch for each in node.markers.orders] == [1, 4]
    ((waiting, _),) = node.markers.waiting
    assert waiting.coordinator_epoch == 4
    node.markers.write()
    assert node.coordinator.find(PAY).state is State.COMPLETE_COMMIT  # type: ignore[union-attr]


def test_an_id_is_as_the_log_has_it_where_another_broker_may_have_led(start: Start) -> None:
    """A write has failed here, and is in the log: the leader in between has responded by it."""
    node = start()
    node.lead(NODE, NODE, epoch=1)
    _, pair = node.init()
    image = node.coordinator.find(PAY)
    assert image is not None
    after = image._replace(epoch=image.epoch + 1)
    node.store.write(PAY, node.store.term_of(PAY), after, lambda code: None)
    node.lead(NODE, NODE, epoch=2)
    assert node.coordinator.find(PAY) == image
    node.lead(NODE, NODE, epoch=4)
    found = node.coordinator.find(PAY)
    assert found is not None and found.pair == Pair(pair.producer_id, pair.epoch + 1)


def test_tombstones_are_one_batch(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    names = [f"n{n}" for n in range(20)]
    names = [name for name in names if partition_for(name, COUNT) == 0]
    for name in names:
        node.init(name)
    log = node.open[0]
    codes: list[ErrorCode] = []
    end = log.log_end_offset
    node.store.forget(names, node.table.term(0), codes.append)
    assert codes == [NONE]
    assert int.from_bytes(log.read(end)[57:61]) == len(names) > 5
    node = start()
    node.lead(NODE, NODE, epoch=1)
    assert not list(node.coordinator.listings())


def an_id_in(partition: int, but: str) -> str:
    names = (f"id-{number}" for number in range(100))
    return next(each for each in names if partition_for(each, COUNT) == partition and each != but)


def test_a_write_that_hangs_has_one_thread(start: Start) -> None:
    """Other ids of its partition are refused, and come again; those of others are served."""
    node = start()
    node.lead(*[NODE] * COUNT)
    place = partition_for(PAY, COUNT)
    beside, elsewhere = an_id_in(place, PAY), an_id_in(1 - place, PAY)
    pairs = {name: node.init(name)[1] for name in (PAY, beside, elsewhere)}

    def add(name: str) -> ErrorCode:
        return node.add(pairs[name], name)

    with standing(("write", f"{TRANSACTIONS_TOPIC}-{place}/{0:020}.log")) as disk:
        hanging = disk.begin(lambda: add(PAY))
        for _ in range(2):  # the second one at once
            assert disk.soon(lambda: add(beside)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert disk.soon(lambda: add(elsewhere)) is NONE
        disk.go_on()
        assert hanging.result() is NONE
    assert add(beside) is NONE
