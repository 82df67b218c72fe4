"""Transactions in C, beside Python: the same answers, records and markers.

Two brokers get the same requests. One serves in C what is plainly right, and the reason of a
request says why C passed it on; the other one serves all of it in Python.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.image import EPOCH_MAX, NO_PARTITIONS, Pair, TransactionImage
from kbroker.coordinator.txn.states import PREPARED, State
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.types import ApiKey, TopicPartition
from tests.support import record_batches
from tests.support.record_batches import build_batch
from tests.support.standing_disk import standing
from tests.unit.engine.coordinated import (
    ADD,
    ADD_UNTIL,
    END,
    ORDERS,
    PARTITIONS,
    PAY,
    STATE_PARTITIONS,
    TRANSACTIONAL,
    Coordinated,
    Topics,
    error_of_end,
    produced,
)
from tests.unit.engine.following import LONG_MS, lead
from tests.unit.engine.transactional import batch, send
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in
from tests.unit.net.harness import framed, header, running

TV1: Final[list[tuple[int | None, int, int]]] = [(0, 3, 0), (1, 8, 2), (2, 9, 3), (3, 11, 4)]
TV2: Final[list[tuple[int | None, int, int]]] = [(None, 12, 5), (None, 13, 5)]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[list[Coordinated]]:
    """In C, and in Python."""
    with ExitStack() as stack:
        rigs = [stack.enter_context(running(tmp_path / name)) for name in ("c", "python")]
        yield [Coordinated(rig, in_c=in_c) for rig, in_c in zip(rigs, (True, False), strict=True)]


@pytest.mark.parametrize(("add", "produce", "end"), TV1 + TV2)
def test_a_day_of_a_producer(
    both: list[Coordinated], add: int | None, produce: int, end: int
) -> None:
    talks: list[list[object]] = [[], []]
    for each, talk in zip(both, talks, strict=True):
        pair = each.init()
        for number, topics in enumerate((ORDERS, {"bills": [0], "orders": [2]}, ORDERS)):
            if add is not None:
                talk.append(each.add(add, pair, topics))
                talk.append(each.add(add, pair, {"orders": [0]}))
            sequences = {"orders": 0 if end == 5 or number < 2 else 2, "bills": 0}
            got = each.produce(produce, pair, topics, sequences=sequences)
            talk.append([(p.error, p.base_offset) for p in got])
            talk.append(each.image())
            talk.append(each.end(end, pair, committed=number != 1))
            talk.append(each.image())
            if end == 5:
                pair = pair._replace(epoch=pair.epoch + 1)
    assert talks[0] == talks[1]
    assert both[0].everything() == both[1].everything()
    assert both[0].in_python == []
    assert both[0].joins + len(both[0].questions) == 3
    for each in both:
        counts, transaction = each.coordinator.counts, each.ids.get(PAY)
        assert (counts.committed, counts.aborted, counts.timed_out) == (2, 1, 0)
        assert transaction is not None and transaction.aborts == (1, 0)


# --- every cell -----------------------------------------------------------------------------------

OTHER: Final = Pair(2_000, 0)
STATES: Final = [None, *(each for each in State if each >= 0)]


def image_in(state: State | None, epoch: int = 3) -> TransactionImage | None:
    if state is None:
        return None
    holds = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    places = frozenset({TopicPartition("orders", 0)}) if holds else NO_PARTITIONS
    return TransactionImage(
        1_000, epoch, 60_000, state, 1, 2 if holds else -1, places, 1_000, last_epoch=epoch - 1,
        client_version=2,
    )  # fmt: skip


def asked(each: Coordinated, what: str, pair: Pair) -> object:
    if what.startswith("add"):
        return each.add(3, pair, {"orders": [0]} if what == "add known" else ORDERS)
    if what == "end 4":
        return each.end(4, pair, committed=False)
    if what == "end 5":
        return each.end(5, pair)
    version = 11 if what == "verify" else 12
    return [(p.error, p.message) for p in each.produce(version, pair, {"orders": [0]})]


def is_plainly_right(what: str, where: tuple[State | None, int, Pair]) -> bool:
    state, epoch, pair = where
    if pair.producer_id != 1_000:
        return False
    if what.startswith("add") or what == "join":
        return state in (State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    return state is State.ONGOING and not (what == "end 5" and epoch >= EPOCH_MAX - 1)


@pytest.mark.parametrize("what", ["add", "add known", "end 4", "end 5", "verify", "join"])
@pytest.mark.parametrize("pending", [False, True])
def test_every_cell(both: list[Coordinated], what: str, pending: bool) -> None:
    for state, epoch in itertools.product(STATES, (0, 3, EPOCH_MAX - 1, EPOCH_MAX)):
        for pair in (Pair(1_000, epoch), Pair(1_000, epoch - 1), OTHER):
            found = []
            for each in both:
                each.put(image_in(state, epoch))
                transaction = each.ids.get(PAY)
                if transaction is not None:
                    transaction.pending = pending
                found.append((asked(each, what, pair), each.image(), each.is_pending()))
            where = (state, epoch, pair)
            assert found[0] == found[1], where
            in_python = bool(both[0].in_python or both[0].questions)
            is_plain = pair.epoch == epoch and is_plainly_right(what, where)
            is_plain &= what == "verify" or not pending
            # A partition may refuse a batch, or have its transaction, and asks for nothing then.
            assert not (is_plain and in_python), where
            assert is_plain or in_python or what in ("verify", "join"), where
            for each in both:
                each.in_python.clear()
                each.questions.clear()
    assert both[0].everything() == both[1].everything()


@pytest.mark.parametrize(
    ("topics", "name"),
    [
        ({"orders": [0, PARTITIONS]}, PAY),
        ({"orders": [-1]}, PAY),
        ({"orders": [0], "nowhere": [0]}, PAY),
        ({OFFSETS_TOPIC: [0]}, PAY),
        ({}, PAY),
        ({"orders": []}, PAY),
        (ORDERS, ""),
        (ORDERS, "unknown"),
        (ORDERS, "p\u00e4y"),
    ],
)
@pytest.mark.parametrize("version", range(ADD_UNTIL + 1))
def test_partitions_that_python_looks_at(
    both: list[Coordinated], version: int, topics: Topics, name: str
) -> None:
    answers = []
    for each in both:
        pair = each.init(name if name == "p\u00e4y" else PAY)
        answers.append(each.add(version, pair, topics, name=name))
    assert answers[0] == answers[1]
    assert both[0].in_python == [(ADD, "transaction")]
    assert both[0].everything() == both[1].everything()


def test_partitions_as_they_are_named(both: list[Coordinated]) -> None:
    """Twice, in any order, and none of a topic: the answer repeats it, the record has each once."""
    pairs = [each.init() for each in both]
    for version in range(ADD_UNTIL + 1):
        for topics in ({"orders": [2, 0, 2], "bills": [0, 0]}, {"orders": [1], "bills": []}):
            found = [
                each.add(version, pair, topics) for each, pair in zip(both, pairs, strict=True)
            ]
            assert found[0] == found[1]
        for each, pair in zip(both, pairs, strict=True):
            each.end(4, pair)
    assert both[0].everything() == both[1].everything()
    assert both[0].in_python == []


def test_an_id_that_is_longer_than_any_ends_the_connection(both: list[Coordinated]) -> None:
    name = b"\xc1\xb8\x02" + b"p" * 40_000
    for each in both:
        body = name + struct.pack(">qhb", 1_000, 0, 1) + b"\0"
        each.client.send(framed(header(END, 3) + body))
        assert each.client.ended()
    assert both[0].in_python == [(END, "transaction")]


@pytest.mark.parametrize("key", [ADD, END])
def test_bytes_that_are_no_request_end_the_connection(both: list[Coordinated], key: ApiKey) -> None:
    for each in both:
        each.client.send(framed(header(key, 3) + b"\x04pay\0"))
        assert each.client.ended()
    assert both[0].in_python == [(key, "transaction")]


def test_a_client_that_is_not_known_is_for_python_once(both: list[Coordinated]) -> None:
    """Since the id was loaded."""
    for each in both:
        image = image_in(State.EMPTY)
        assert image is not None
        each.coordinator.load({PAY: image}, 1)
        pair = Pair(1_000, 3)
        each.add(3, pair)
        each.end(4, pair)
    assert both[0].in_python == [(ADD, "transaction")]
    assert both[0].everything() == both[1].everything()


def test_requests_of_one_run_are_few_writes(both: list[Coordinated]) -> None:
    each = both[0]
    names = [f"pay-{number}" for number in range(20)]
    pairs = {name: each.init(name) for name in names}
    clients = {name: each.rig.client() for name in names}
    rounds = 5
    for _ in range(rounds):
        for name in names:
            clients[name].send(each.produce_frame(12, pairs[name], name=name))
        for name in names:
            assert [p.error for p in produced(12, clients[name])] == [0, 0]
        for name in names:
            body = each.end_body(5, pairs[name], name=name)
            clients[name].send(framed(header(END, 5, 7) + body))
        for name in names:
            assert error_of_end(each.answer(END, 5, clients[name])) is ErrorCode.NONE
            pairs[name] = pairs[name]._replace(epoch=pairs[name].epoch + 1)
    assert each.in_python == []
    assert each.joins + len(each.questions) == rounds * len(names)
    for name in names:
        image = each.image(name)
        assert image is not None
        assert (image.state, image.pair) == (State.COMPLETE_COMMIT, pairs[name])
    for index in (0, 1):
        transactions: dict[int, list[tuple[int, bool]]] = {}
        for _, producer_id, epoch, _, _, control, _ in each.contents("orders", index):
            transactions.setdefault(producer_id, []).append((epoch, control))
        expected = [(n + control, control) for n in range(rounds) for control in (False, True)]
        assert list(transactions.values()) == [expected] * len(names)
        assert image is not None
        assert each.replayed()[name] == image._replace(last_epoch=-1)


# --- what is not plainly right --------------------------------------------------------------------


def test_an_id_of_another_broker(both: list[Coordinated]) -> None:
    found = []
    for each in both:
        pair = each.init()
        index = partition_for(PAY, STATE_PARTITIONS)
        each.table.close(index)
        answers: list[object] = [each.add(3, pair), each.end(5, pair)]
        answers += [p.error for p in each.produce(12, pair)]
        each.coordinator.unload(lambda name: True)
        each.table.open(index, each.log(TRANSACTIONS_TOPIC, index))
        each.table.activate(index)
        answers += [each.add(3, pair), each.end(5, pair)]
        found.append(answers)
    assert found[0] == found[1]
    assert both[0].everything() == both[1].everything()


def test_partitions_that_are_known_are_another_broker_s_at_once(both: list[Coordinated]) -> None:
    """Before the ids are forgotten here: that waits for a write that hangs."""
    found = []
    for each in both:
        pair = each.init()
        answers = [each.add(3, pair)]
        each.table.close(partition_for(PAY, STATE_PARTITIONS))
        found.append([*answers, each.add(3, pair)])
    assert found[0] == found[1]
    assert both[0].in_python == [(ADD, "transaction")]


@pytest.mark.parametrize("where", [TRANSACTIONS_TOPIC, "orders"])
def test_where_followers_are_to_have_it_first(both: list[Coordinated], where: str) -> None:
    """Nothing is written before Python has the request."""
    each = both[0]
    pair = each.init()
    each.add(3, pair)
    for log in each.topics[where].logs:
        lead(log)
    before = each.everything()
    asked: list[list[Any]] = []

    def dispatch(request: Any) -> None:
        asked.append(each.everything())
        request.respond(b"")

    each.rig.dispatch = dispatch
    assert each.end(5, pair) == b""
    if where == TRANSACTIONS_TOPIC:
        assert each.add(3, pair, {"bills": [0]}) == b""
    assert asked and all(found == before for found in asked)
    assert not each.is_pending()


def test_a_group_s_offsets_are_python_s(both: list[Coordinated]) -> None:
    for each in both:
        pair = each.init()
        each.coordinator.add_partitions(
            PAY, pair, frozenset({TopicPartition(OFFSETS_TOPIC, 0)}), 0, lambda code: None
        )
        each.end(4, pair)
    assert both[0].in_python == [(END, "transaction")]
    assert both[0].everything() == both[1].everything()


def test_a_marker_that_fails_is_python_s_from_then_on(both: list[Coordinated]) -> None:
    """The outcome is in the log; its client comes again, until the marker is there."""
    each = both[0]
    pair = each.init()
    each.add(3, pair, {"orders": [0], "bills": [0]})
    each.produce(11, pair, {"orders": [0], "bills": [0]})
    each.log("bills", 0).configure(min_insync_replicas=2)
    again = error_of_end(each.end(4, pair))
    assert again is ErrorCode.CONCURRENT_TRANSACTIONS
    image = each.image()
    assert image is not None and image.state is State.PREPARE_COMMIT
    assert each.is_pending() and each.later
    each.log("bills", 0).configure(min_insync_replicas=1)
    each.run_later()
    image = each.image()
    assert image is not None and image.state is State.COMPLETE_COMMIT
    assert error_of_end(each.end(4, pair)) is ErrorCode.NONE
    markers = [control for *_, control, _ in each.contents("bills", 0)]
    assert markers == [False, True]
    each.add(3, pair)
    assert not each.is_pending()


def test_an_outcome_whose_request_is_lost_goes_on_with_the_next_look(
    both: list[Coordinated],
) -> None:
    each = both[0]
    pair = each.init()
    each.add(3, pair, {"bills": [0]})
    each.log("bills", 0).configure(min_insync_replicas=2)
    each.rig.dispatch = lambda request: request.close_connection("lost")
    each.client.send(framed(header(END, 4, 7) + each.end_body(4, pair)))
    assert each.client.ended()
    assert not each.later
    each.log("bills", 0).configure(min_insync_replicas=1)
    for _ in each.coordinator.abort_timed_out():
        pass
    image = each.image()
    assert image is not None and image.state is State.COMPLETE_COMMIT


def test_a_log_that_refuses(both: list[Coordinated]) -> None:
    found = []
    for each in both:
        pair = each.init()
        each.add(3, pair)
        for log in each.topics[TRANSACTIONS_TOPIC].logs:
            log.configure(min_insync_replicas=2)
        answers: list[object] = [each.add(3, pair, {"bills": [0]}), each.end(4, pair)]
        answers += [p.error for p in each.produce(12, pair, {"bills": [0]})]
        answers += [each.image(), each.is_pending()]
        for log in each.topics[TRANSACTIONS_TOPIC].logs:
            log.configure(min_insync_replicas=1)
        answers += [each.add(3, pair, {"bills": [0]}), each.end(4, pair)]
        found.append(answers)
    assert found[0] == found[1]
    assert both[0].everything() == both[1].everything()


@pytest.mark.parametrize("version", [11, 12])
def test_a_produce_that_python_looks_into_has_its_guards(
    both: list[Coordinated], version: int
) -> None:
    """A topic that wants another codec."""
    for each in both:
        hot = each.rig.hot
        pair = each.init()
        plain, packed = (
            batch(epoch=pair.epoch, producer=pair.producer_id, codec=codec)
            for codec in ("none", "gzip")
        )

        def unpack(request: Any, hot: Any = hot, plain: bytes = plain) -> None:
            ((ordinal, *_),) = hot.produce_batches(request)
            hot.produce_checked(request, {}, {ordinal: bytearray(plain)}, {})

        each.add(3, pair, {"bills": [0]})
        each.rig.dispatch = unpack
        each.log("bills", 0).configure(stored_codec=0)
        send(
            each.client, (each.topics["bills"], {0: packed}), version=version, transactional_id=PAY
        )
        assert [p.error for p in produced(version, each.client)] == [0]
        assert each.questions == [PAY]
    assert both[0].everything() == both[1].everything()


@pytest.mark.parametrize("version", [11, 12])
def test_a_batch_with_the_broker_s_time_that_waits_for_python(
    both: list[Coordinated], version: int
) -> None:
    """Its client has not set that time."""
    name = "p\u00e4y"
    answers = []
    for each in both:
        pair = each.init(name)
        each.add(3, pair, {"bills": [0]}, name=name)
        each.log("bills", 0).configure(log_append_time=True)
        (answer,) = each.produce(version, pair, {"bills": [0]}, name=name)
        assert answer.append_time_ms > 0
        answers.append((answer.error, answer.message))
    assert answers == [(ErrorCode.NONE, None)] * 2
    assert both[0].questions == [name]


def test_a_produce_that_cannot_wait_until_python_unpacks_it(
    both: list[Coordinated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to join its transaction in C; then its broker stops, and nothing waits any more."""
    monkeypatch.setattr(record_batches, "compress", copied_from_far_back)
    head = random.Random(1).randbytes(200_000)
    packed = build_batch(
        [head + head[:4]], producer_id=1_000, producer_epoch=0, base_sequence=0,
        attributes=TRANSACTIONAL, codec="snappy",
    )  # fmt: skip
    answers = []
    for each in both:
        pair = each.init()
        assert pair == Pair(1_000, 0)
        each.rig.hot.close_parked()
        send(each.client, (each.topics["bills"], {0: packed}), version=12, transactional_id=PAY)
        answers.append([(p.error, p.message) for p in produced(12, each.client)])
    assert answers[0] == answers[1]
    assert answers[0][0][0] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert both[0].everything() == both[1].everything()


def copied_from_far_back(codec: str, data: bytes) -> bytes:
    """Snappy, with a copy from 200,000 bytes before, which C does not follow."""
    length, left = len(data), bytearray()
    while length >= 0x80:
        left.append(length & 0x7F | 0x80)
        length >>= 7
    left.append(length)
    literal, end = data[:-5], data[-1:]
    left += bytes([62 << 2]) + (len(literal) - 1).to_bytes(3, "little") + literal
    left += bytes([3 << 2 | 3]) + (200_000).to_bytes(4, "little")
    return bytes(left) + b"\0" + end


def test_consumers_are_called_when_a_transaction_ends(both: list[Coordinated]) -> None:
    each = both[0]
    pair = each.init()
    each.produce(12, pair, {"bills": [0]})
    consumer = each.rig.client()
    ask = Ask(each.topics["bills"], 0, 0)
    consumer.send(fetch_frame(12, [ask], max_wait_ms=LONG_MS, read_committed=True))
    each.rig.wait_parked(1)
    each.end(5, pair)
    assert fetched_in(12, consumer.receive()).only.records


def test_python_serves_all_of_it_when_c_is_not_to(both: list[Coordinated]) -> None:
    each = both[0]
    assert each.hot is not None
    pair = each.init()
    each.hot.serve(False)
    each.add(3, pair)
    each.produce(11, pair)
    each.end(4, pair)
    assert each.in_python == [(ADD, "transaction"), (END, "transaction")]
    assert each.questions == [PAY]
    each.hot.serve(True)
    each.add(3, pair)
    assert len(each.in_python) == 2


def test_the_version_of_the_records(both: list[Coordinated]) -> None:
    each = both[0]
    assert each.hot is not None
    pair = each.init()
    each.hot.follow_version(0)
    each.add(3, pair)
    assert each.last_value_version() == 0
    each.hot.follow_version(1)
    each.end(4, pair)
    assert each.last_value_version() == 1


@pytest.mark.parametrize("produces", [False, True])
def test_a_topic_that_is_not_published_yet_is_python_s(
    both: list[Coordinated], produces: bool
) -> None:
    """Its partitions are led already; markers go by the published image."""
    each = both[0]
    pair = each.init()
    each.topics["new"] = each.rig.create("new")
    for _ in range(2):
        if produces:
            each.produce(12, pair, {"new": [0]})
        else:
            each.add(3, pair, {"new": [0]})
    assert each.questions == [PAY] or each.in_python == [(ADD, "transaction")] * 2
    assert each.rig.hot.statistics()["transaction_adds"] == 0


def test_an_outcome_that_hangs_while_its_id_is_loaded_again(both: list[Coordinated]) -> None:
    """The write ends, and changes nothing of the image that was loaded meanwhile."""
    each = both[0]
    pair = each.init()
    each.add(3, pair)
    image = each.coordinator.find(PAY)
    where = f"{TRANSACTIONS_TOPIC}-{partition_for(PAY, STATE_PARTITIONS)}/{0:020}.log"
    with standing(("write", where)) as disk:
        ending = disk.begin(lambda: each.end(4, pair))
        assert each.is_pending()
        each.coordinator.unload(lambda name: True)
        each.put(image)
        assert not each.is_pending()
        disk.go_on()
        assert error_of_end(ending.result()) is ErrorCode.NONE
    assert each.in_python == [(END, "transaction")]
    found = each.image()
    assert found is not None and found.state is State.COMPLETE_COMMIT
    prepared = [image for _, image in each.states() if image and image.state in PREPARED]
    assert len(prepared) == 2


def test_markers_that_hang_while_the_id_goes_to_another_broker(both: list[Coordinated]) -> None:
    """Nothing more is written for it here."""
    each = both[0]
    pair = each.init()
    each.add(3, pair, {"bills": [0]})
    each.produce(11, pair, {"bills": [0]})
    index = partition_for(PAY, STATE_PARTITIONS)
    with standing(("write", f"bills-0/{2:020}.log")) as disk:
        ending = disk.begin(lambda: each.end(4, pair))
        disk.soon(lambda: each.table.close(index))
        each.coordinator.unload(lambda name: True)
        disk.go_on()
        assert error_of_end(ending.result()) is ErrorCode.NOT_COORDINATOR
    states = [image.state for _, image in each.states() if image]
    assert states == [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT]
