"""Records that a group has given up, on their way to its dead-letter topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from kbroker.coordinator.share.images import StateBatch
from kbroker.engine.share import figures
from kbroker.engine.share.dead_letters import AGAIN_MS, WAIT_MS_MAX, Destination, Refused
from kbroker.engine.share.led import LedSharePartition
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import LogLines
from kbroker.protocol.record_batch import Record, decode_batches
from kbroker.types import TopicPartition
from tests.unit.engine.share.world import KEY, SETTINGS, World, fetch, say

REJECT = 3
TO = TopicPartition("dlq.orders", 0)
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


class HandTopics:
    """Writes wait here until a test answers them."""

    def __init__(self) -> None:
        self.to: Destination | Refused = Destination(TO, 1_048_588)
        self.asked: list[tuple[str, int]] = []
        self.writes: list[tuple[bytes, Callable[[ErrorCode], object]]] = []
        self.fails: Exception | None = None

    def destination(self, topic: str, partition: int) -> Destination | Refused:
        self.asked.append((topic, partition))
        return self.to

    def write(
        self, place: TopicPartition, batch: bytes, done: Callable[[ErrorCode], object]
    ) -> None:
        assert place == TO
        if self.fails is not None:
            raise self.fails
        self.writes.append((batch, done))


@pytest.fixture
def topics() -> HandTopics:
    return HandTopics()


@pytest.fixture
def world(topics: HandTopics) -> World:
    made = World(topics)
    made.settings = SETTINGS._replace(dead_letters="dlq.orders", copies_records=True)
    return made


def copied(batch: bytes) -> list[bytes | None]:
    records: Sequence[Record] = [each for one in decode_batches(batch) for each in one.records]
    return [each.value for each in records]


def reject(world: World, led: LedSharePartition, first: int, last: int) -> None:
    codes: list[ErrorCode] = []
    say(led, first, last, codes, REJECT)
    world.persister.answer_write()
    assert codes == [NONE]


def rejected(world: World, count: int = 3) -> LedSharePartition:
    """All records are rejected, and kept so."""
    led = world.ready()
    world.log.append(count)
    assert fetch(led) == [(0, count - 1)]
    reject(world, led, 0, count - 1)
    return led


def answer(world: World, topics: HandTopics, code: ErrorCode = NONE) -> bytes:
    batch, done = topics.writes.pop(0)
    done(code)
    world.run()
    return batch


def test_records_are_archived_when_their_copies_are_written(
    world: World, topics: HandTopics
) -> None:
    led = rejected(world)
    assert topics.asked == [("dlq.orders", 0)]
    assert led.machine.start == 0
    assert copied(answer(world, topics)) == [b"v0", b"v1", b"v2"]
    assert led.machine.start == 3
    assert world.persister.answer_write() == (3, [], 0)
    assert topics.writes == []
    assert world.figures.dead_letters()["copied"] == 3


def test_the_client_is_answered_before_the_copy_is_written(
    world: World, topics: HandTopics
) -> None:
    led = world.ready()
    world.log.append(2)
    fetch(led)
    codes: list[ErrorCode] = []
    say(led, 0, 0, codes, REJECT)
    assert topics.writes == []  # its rejection is not kept yet
    assert world.persister.answer_write()[1] == [StateBatch(0, 0, 3, 1)]
    assert codes == [NONE]
    assert len(topics.writes) == 1


def test_a_group_without_a_topic_archives_at_once(world: World, topics: HandTopics) -> None:
    world.settings = SETTINGS
    led = rejected(world)
    assert led.machine.start == 3
    assert topics.asked == []


def test_records_of_the_dead_letter_topic_itself_are_archived(
    world: World, topics: HandTopics
) -> None:
    world.settings = world.settings._replace(dead_letters="orders")
    assert rejected(world).machine.start == 3
    assert topics.asked == []


def test_one_batch_at_a_time_and_the_next_ones_after_it(world: World, topics: HandTopics) -> None:
    led = world.ready()
    world.log.append(3)
    fetch(led)
    reject(world, led, 0, 0)
    reject(world, led, 1, 2)
    assert len(topics.writes) == 1
    assert copied(answer(world, topics)) == [b"v0"]
    assert copied(answer(world, topics)) == [b"v1", b"v2"]
    assert led.machine.start == 3


@pytest.mark.parametrize("waits", [True, False])
def test_a_refusal_waits_or_the_records_are_archived_without_copies(
    world: World, topics: HandTopics, waits: bool, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        "kbroker.engine.share.dead_letters.lines", LogLines(figures.logger, lines_max=10)
    )
    topics.to = Refused("it is not there", waits)
    with caplog.at_level(logging.INFO, "kbroker.share"):
        led = rejected(world)
        assert led.machine.start == (0 if waits else 3)
        lost = world.figures.dead_letters()["not written"]
        assert lost == (0 if waits else 3)
        assert led.given_up(led.describe(1)[1]) == (
            "rejected; a copy is to be written to dlq.orders; the last try failed: it is not there"
            if waits
            else ""
        )
        topics.to = Destination(TO, 1_048_588)
        world.pass_ms(1_000)
        assert len(topics.writes) == (1 if waits else 0)
        if waits:
            answer(world, topics)
            assert led.machine.start == 3
    words = [each.getMessage() for each in caplog.records]
    if waits:
        assert words == [
            "dead letters of share group g cannot be written now: it is not there; tried again"
            " for 120 s",
            "dead letters of share group g are written again",
        ]
    else:
        assert words == [
            "share group g: 3 records of orders-0, from 0 on, are archived without a copy in its"
            " dead-letter topic: it is not there -> see docs/share-groups.md, dead letters"
        ]


def test_a_write_that_fails_is_tried_again_more_and_more_seldom(
    world: World, topics: HandTopics
) -> None:
    led = rejected(world)
    tries: list[int] = []
    began_ms = world.clock.monotonic_ms()
    while led.machine.start == 0:
        if topics.writes:
            tries.append((world.clock.monotonic_ms() - began_ms) // 1_000)
            answer(world, topics, NOT_LEADER)
        else:
            world.pass_ms(1_000)
    assert tries[:6] == [0, 1, 3, 7, 15, 25]
    assert tries[-1] * 1_000 >= WAIT_MS_MAX > tries[-2] * 1_000
    assert world.figures.dead_letters()["not written"] == 3
    # The next ones are tried once, until a write succeeds.
    world.log.append(2)
    fetch(led)
    world.persister.answer_write()
    reject(world, led, 3, 3)
    answer(world, topics, NOT_LEADER)
    assert led.machine.start == 4
    world.persister.answer_write()
    reject(world, led, 4, 4)
    answer(world, topics)
    assert led.machine.start == 5
    assert world.figures.dead_letters()["copied"] == 1


def test_an_error_that_does_not_pass_is_the_end_of_it(world: World, topics: HandTopics) -> None:
    led = rejected(world)
    answer(world, topics, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert led.machine.start == 3
    assert world.figures.dead_letters()["not written"] == 3


def test_one_record_that_is_refused_keeps_no_other_from_its_copy(
    world: World, topics: HandTopics
) -> None:
    """Such as one without a key, for a compacted topic."""
    led = rejected(world, 5)
    written = []
    for _ in range(20):
        if not topics.writes:
            break
        refused = b"v3" in copied(topics.writes[0][0])
        batch = answer(world, topics, ErrorCode.INVALID_RECORD if refused else NONE)
        written += [] if refused else copied(batch)
        if world.persister.writes:
            world.persister.answer_write()
    assert written == [b"v0", b"v1", b"v2", b"v4"]
    assert led.machine.start == 5
    assert world.figures.dead_letters()["not written"] == 1


def test_a_group_whose_topic_is_now_its_source_has_no_copies(
    world: World, topics: HandTopics
) -> None:
    led = rejected(world)
    answer(world, topics, NOT_LEADER)
    world.settings = world.settings._replace(dead_letters="orders")
    world.pass_ms(WAIT_MS_MAX)
    assert topics.writes == [] and led.machine.start == 3


def test_a_log_that_cannot_be_read_now_is_read_again(world: World, topics: HandTopics) -> None:
    led = world.ready()
    world.log.append(2)
    fetch(led)

    def breaks() -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    world.log.before_read = breaks
    reject(world, led, 0, 1)
    assert topics.writes == []
    world.log.before_read = lambda: None
    world.pass_ms(1_000)
    assert copied(answer(world, topics)) == [b"v0", b"v1"]


def test_records_that_the_log_loses_are_passed(world: World, topics: HandTopics) -> None:
    topics.to = Refused("no leader", waits=True)
    led = rejected(world)
    world.log.append(1)
    world.log.log_start_offset = 2
    assert led.machine.archiving == 3
    topics.to = Destination(TO, 1_048_588)
    world.pass_ms(1_000)
    assert copied(answer(world, topics)) == [b"v2"]
    assert world.figures.dead_letters()["deleted before"] == 2
    assert fetch(led) == [(3, 3)]


def test_the_log_may_lose_all_of_them(world: World, topics: HandTopics) -> None:
    topics.to = Refused("no leader", waits=True)
    led = rejected(world)
    world.log.append(1)
    world.log.log_start_offset = 3
    world.pass_ms(1_000)
    assert world.figures.dead_letters()["deleted before"] == 3
    assert world.persister.answer_write()[0] == 3
    assert fetch(led) == [(3, 3)]
    assert topics.writes == []


def test_a_write_that_cannot_begin_is_tried_again(world: World, topics: HandTopics) -> None:
    topics.fails = RuntimeError("no loop")
    led = rejected(world)
    topics.fails = None
    world.pass_ms(1_000)
    answer(world, topics)
    assert led.machine.start == 3
    assert world.failures.count == 1


def test_a_fault_in_the_copies_does_not_stop_the_group(
    world: World, topics: HandTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("kbroker.engine.share.dead_letters.copies_of", breaks)
    led = rejected(world)
    assert led.serves
    assert led.machine.start == 3
    assert (world.failures.count, world.figures.dead_letters()["not written"]) == (1, 3)


def test_the_next_leader_goes_on_with_them(world: World, topics: HandTopics) -> None:
    world.log.append(4)
    led = world.ready(0, (StateBatch(0, 1, 3, 5), StateBatch(2, 2, 3, 1)))
    found = [each for one in decode_batches(answer(world, topics)) for each in one.records]
    messages = [dict(each.headers)["__dlq.errors.message"] for each in found]
    assert messages == [
        b"Offset delivery count exceeded the threshold.",
        b"Offset delivery count exceeded the threshold.",
        b"Offset rejected by client.",
    ]
    assert led.machine.start == 3


def test_a_group_that_has_no_topic_any_more_archives_them(world: World, topics: HandTopics) -> None:
    world.settings = SETTINGS
    world.log.append(1)
    led = world.ready(0, (StateBatch(0, 0, 3, 1),))
    assert led.machine.start == 1
    assert topics.writes == []


def test_a_share_partition_stays_for_its_copies_after_the_last_session(
    world: World, topics: HandTopics
) -> None:
    led = rejected(world)
    world.leaders.end_group("g", lambda: False)
    assert world.leaders.find(KEY) is led
    answer(world, topics)
    world.persister.answer_write()
    assert world.leaders.find(KEY) is None


def test_an_answer_after_the_end_changes_nothing(world: World, topics: HandTopics) -> None:
    led = rejected(world)
    led.end(NOT_LEADER)
    answer(world, topics)
    assert led.machine.start == 0


def failed(error: Exception) -> None:
    raise AssertionError(error)


def test_a_topic_that_fails_leaves_turns_for_others(topics: HandTopics) -> None:
    world = World(topics, turns=4)
    world.settings = SETTINGS._replace(dead_letters="dlq.orders", copies_records=True)
    rejected(world)
    answer(world, topics, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.pass_ms(AGAIN_MS)
    assert len(topics.writes) == 1  # again, with the one turn that the topic has
    began: list[str] = []
    assert world.route is not None
    for name in ("dlq.orders", "dlq.other"):
        world.route.turns.take(name, partial(began.append, name), failed)
    world.run()
    assert began == ["dlq.other"]
    answer(world, topics)
    assert began == ["dlq.other", "dlq.orders"]
