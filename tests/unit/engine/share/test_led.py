"""A share-partition in service: its start, its writes and their failures, times, and waits."""

from __future__ import annotations

import pytest

from kbroker.config.share_settings import EARLIEST
from kbroker.coordinator.share.images import StateBatch
from kbroker.engine.share.led import Fetched, LedSharePartition, client_code
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.replica.share.acknowledging import Acknowledgement
from kbroker.replica.share.acquiring import Wanted
from tests.unit.engine.share.world import KEY, SETTINGS, TOPIC, World

ALL = Wanted(500, 500)
NONE, NOT_LEADER, LATER = (
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def spans(fetched: Fetched | None) -> list[tuple[int, int]]:
    return [] if fetched is None else [each[:2] for each in fetched.acquired]


def fetch(led: LedSharePartition, owner: int = 1, min_bytes: int = 1) -> list[tuple[int, int]]:
    return spans(led.fetch(owner, ALL, 1 << 20, min_bytes))


def say(led: LedSharePartition, first: int, last: int, codes: list[ErrorCode]) -> None:
    code = led.acknowledge(1, [Acknowledgement(first, last, [1])], codes.append)
    if code is not None:
        codes.append(code)


class TestStart:
    @pytest.mark.parametrize(
        ("reset", "start"),
        [
            ("latest", 10),
            (EARLIEST, 2),
            ("by_duration:PT0S", 10),
            ("by_duration:P40000D", 1),
            ("by_duration:P999999999999999999D", 1),
        ],
    )
    def test_it_is_found_by_the_reset_and_written_first(self, reset: str, start: int) -> None:
        world = World()
        world.log.append(10)
        world.log.log_start_offset = 2
        world.clock.set_wall_ms(1_700_000_000_000)
        world.settings = SETTINGS._replace(reset=reset)
        led = world.ready(-1)
        world.log.append(5)
        assert fetch(led) == []
        assert world.persister.answer_write() == (start, [], 0)
        world.run()
        world.log.log_start_offset = 0
        assert fetch(led) == [(start, 14)]
        assert world.persister.writes == type(world.persister.writes)()

    @pytest.mark.parametrize(
        ("code", "answer"),
        [
            (ErrorCode.FENCED_LEADER_EPOCH, NOT_LEADER),
            (ErrorCode.NOT_COORDINATOR, LATER),
            (ErrorCode.NETWORK_EXCEPTION, LATER),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_a_read_that_fails_ends_it_and_the_next_fetch_reads_again(
        self, code: ErrorCode, answer: ErrorCode
    ) -> None:
        world = World()
        led = world.led()
        world.persister.answer_read(code=code)
        with pytest.raises(KafkaError) as raised:
            fetch(led)
        assert raised.value.code is answer
        assert len(world.leaders) == 0
        assert world.led() is not led
        assert len(world.persister.reads) == 1

    def test_a_first_write_that_fails_ends_it(self) -> None:
        world = World()
        led = world.ready(-1)
        world.persister.answer_write(ErrorCode.REQUEST_TIMED_OUT)
        with pytest.raises(KafkaError):
            fetch(led)

    def test_a_state_that_is_none_ends_it(self) -> None:
        world = World()
        led = world.ready(0, (StateBatch(5, 4, 0, 0),))
        with pytest.raises(KafkaError):
            fetch(led)
        assert world.failures.count == 1

    def test_state_of_lost_records_is_forgotten_by_two_writes(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready(0, (StateBatch(0, 4, 0, 1), StateBatch(8, 14, 2, 1)))
        assert world.persister.answer_write()[0] == 15
        assert fetch(led) == []
        left = [StateBatch(0, 4, 0, 1), StateBatch(8, 9, 2, 1)]
        assert world.persister.answer_write() == (0, left, 2)
        world.log.append(10)
        assert fetch(led) == [(0, 4), (5, 7), (10, 19)]


class TestWrites:
    def test_the_answer_comes_with_the_write(self) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        assert fetch(led) == [(0, 9)]
        say(led, 0, 4, codes)
        say(led, 5, 6, codes)
        assert codes == []
        assert world.persister.answer_write() == (0, [StateBatch(0, 4, 2, 1)], 5)
        assert codes == [NONE]
        assert world.persister.answer_write() == (5, [StateBatch(5, 6, 2, 1)], 2)
        assert codes == [NONE, NONE]

    def test_a_failed_write_is_answered_and_may_be_repeated(self) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        say(led, 0, 4, codes)
        world.persister.answer_write(ErrorCode.NOT_COORDINATOR)
        assert codes == [LATER]
        assert not world.persister.writes
        say(led, 0, 4, codes)
        world.persister.answer_write()
        assert codes == [LATER, NONE]

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
    def test_a_fenced_leader_forgets_all(self, code: ErrorCode) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        say(led, 0, 4, codes)
        say(led, 5, 6, codes)
        world.persister.answer_write(code)
        assert codes == [NOT_LEADER, NOT_LEADER]
        say(led, 7, 7, codes)
        assert codes[2:] == [NOT_LEADER]
        assert world.leaders.find(KEY) is None

    def test_counts_that_no_client_waits_for_are_written_again_later(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)
        led.end_session(1)
        world.persister.answer_write(ErrorCode.REQUEST_TIMED_OUT)
        assert not world.persister.writes
        world.pass_ms(1_001)
        assert world.persister.answer_write() == (0, [StateBatch(0, 9, 0, 1)], 0)

    def test_a_token_that_raises_does_not_stop_the_others(self) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)

        def raises(code: ErrorCode) -> None:
            raise RuntimeError("a client that has gone")

        led.acknowledge(1, [Acknowledgement(0, 0, [1])], raises)
        say(led, 1, 1, codes)
        world.persister.answer_write()
        world.persister.answer_write()
        assert codes == [NONE]
        assert world.failures.count == 1


class TestWaits:
    def test_the_end_of_a_lock_wakes(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)
        world.run()
        before = world.woken
        world.pass_ms(SETTINGS.lock_ms - 1)
        assert world.woken == before
        world.pass_ms(1)
        assert world.woken == before + 1
        assert fetch(led, 2) == [(0, 9)]

    def test_one_read_at_a_time(self) -> None:
        world = World()
        world.log.append(10)
        led, met = world.ready(), list[object]()

        def meanwhile() -> None:
            world.log.before_read = lambda: None
            met.append(led.fetch(2, ALL, 1 << 20))

        world.log.before_read = meanwhile
        before = world.woken
        assert fetch(led) == [(0, 9)]
        assert met == [None]
        assert world.woken == before + 1

    def test_a_fetch_at_the_end_watches_the_log_once(self) -> None:
        world = World()
        led = world.ready()
        assert fetch(led) == []
        assert fetch(led, 2) == []
        ((offset, is_committed, count_bytes, done),) = world.watches
        assert (offset, is_committed, count_bytes) == (0, False, 1)
        world.log.append(3)
        before = world.woken
        done(NONE)
        assert world.woken == before + 1
        assert fetch(led) == [(0, 2)]
        fetch(led)
        assert world.watches[1][0] == 3

    def test_fewer_bytes_than_are_wanted(self) -> None:
        world = World()
        world.log.append(3)
        led = world.ready()
        assert fetch(led, 1, 100_000) == []
        assert world.watches[0][:3] == (0, False, 100_000)
        assert fetch(led, 1, 1) == [(0, 2)]

    def test_available_records_are_not_held_back_for_more_bytes(self) -> None:
        world = World()
        world.log.append(3)
        led = world.ready()
        fetch(led)
        led.end_session(1)
        assert fetch(led, 2, 100_000) == [(0, 2)]

    def test_a_watch_that_ends_at_once_looks_again_a_little_later(self) -> None:
        world = World()
        led = world.ready()
        world.run()
        parts = led._parts._replace(await_records=lambda *args: args[-1](NONE) and None)
        object.__setattr__(led, "_parts", parts)
        before = world.woken
        assert fetch(led) == []
        assert world.woken == before
        world.pass_ms(20)
        assert world.woken == before + 1

    def test_watches_have_a_bound(self) -> None:
        world = World()
        world.log.append(3)
        led = world.ready()
        for size in range(50):
            fetch(led, 1, 100_000 + size)
        assert len(world.watches) == 8

    def test_a_log_that_no_fetch_waits_for_is_not_watched(self) -> None:
        world = World()
        led = world.ready()
        fetch(led)
        world.leaders.stopped_waiting([KEY])
        assert world.cancelled == [True]
        world.leaders.stopped_waiting([KEY])
        assert world.cancelled == [True]
        fetch(led)
        assert len(world.watches) == 2

    def test_wake_ups_until_a_handler_looks_are_one(self) -> None:
        world = World()
        for _ in range(100):
            world.leaders.wake(KEY)
        assert len(world.soon) == 1
        world.run()
        world.leaders.wake(KEY)
        assert len(world.soon) == 1


class TestLog:
    def test_the_log_starts_later_than_the_window(self) -> None:
        world = World()
        world.log.append(10)
        world.log.append(10)
        led = world.ready()
        fetch(led)
        world.log.log_start_offset = 15
        codes: list[ErrorCode] = []
        say(led, 0, 9, codes)
        assert codes == [NONE]
        assert led.machine.start == 15

    def test_the_log_starts_later_while_it_is_read(self) -> None:
        world = World()
        world.log.append(10)
        world.log.append(10)
        led = world.ready()

        def moves() -> None:
            world.log.before_read = lambda: None
            world.log.log_start_offset = 10

        world.log.before_read = moves
        assert fetch(led) == [(10, 19)]

    def test_another_error_of_the_log_is_the_answer(self) -> None:
        world = World()
        led = world.ready()

        def fails() -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

        world.log.before_read = fails
        with pytest.raises(KafkaError) as raised:
            fetch(led)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        world.log.before_read = lambda: None
        assert fetch(led) == []

    def test_aborted_records_are_left_out_and_markers_are_not(self) -> None:
        world = World()
        world.settings = SETTINGS._replace(is_committed=True)
        world.log.append(3)
        world.log.append(4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        world.log.append(1, producer_id=7, producer_epoch=0, transactional=True, marker=True,
                         aborts=True)  # fmt: skip
        world.log.append(2, producer_id=7, producer_epoch=0, base_sequence=4, transactional=True)
        world.log.append(1, producer_id=7, producer_epoch=0, transactional=True, marker=True,
                         aborts=False)  # fmt: skip
        world.log.aborted = [(7, 3)]
        led = world.ready()
        assert fetch(led) == [(0, 2), (7, 10)]
        world.settings = SETTINGS
        led = World.ready(other := World())
        other.log.batches, other.log.log_end_offset = world.log.batches, 11
        assert fetch(led) == [(0, 10)]

    def test_only_the_batches_with_acquired_records_are_sent(self) -> None:
        world = World()
        for _ in range(3):
            world.log.append(2)
        led = world.ready()
        fetched = led.fetch(1, Wanted(3, 500, exactly=True), 1 << 20)
        assert fetched is not None
        assert fetched.records == world.log.batches[0][1] + world.log.batches[1][1]
        assert spans(fetched) == [(0, 2)]


class TestEnds:
    def test_the_end_of_a_session_wakes_and_its_records_go_on(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)
        led.end_session(2)
        world.run()
        before = world.woken
        led.end_session(1)
        assert world.woken == before + 1
        assert fetch(led, 2) == [(0, 9)]

    def test_records_that_were_not_sent_go_back_and_do_not_count(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetched = led.fetch(1, ALL, 1 << 20)
        assert fetched is not None
        led.give_back(1, fetched.acquired)
        again = led.fetch(2, ALL, 1 << 20)
        assert again is not None
        assert again.acquired[0].delivery_count == 1
        assert not world.persister.writes

    def test_another_leader_epoch_reads_again(self) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        say(led, 0, 4, codes)
        world.log.leader_epoch = 4
        other = world.led()
        assert other is not led
        assert codes == [NOT_LEADER]
        world.persister.answer_write()  # too late: it changes nothing
        assert world.leaders.find(KEY) is other
        assert world.persister.reads[0][0] == 4

    @pytest.mark.parametrize(
        ("leader", "epoch", "lives"), [(1, 3, True), (1, 4, False), (2, 3, False)]
    )
    def test_the_image_ends_those_that_are_led_elsewhere(
        self, leader: int, epoch: int, lives: bool
    ) -> None:
        world = World()
        world.ready()
        image = ClusterImage(1, "c", 1)
        partition = PartitionImage("orders", 0, (1, 2), (1, 2), leader, epoch, 0)
        world.leaders.follow(
            image.with_topics([TopicImage("orders", TOPIC, (partition,), {}, False)]), 1
        )
        assert (world.leaders.find(KEY) is not None) is lives
        world.leaders.follow(image, 1)
        assert world.leaders.find(KEY) is None

    def test_before_its_state_was_read_nothing_is_acknowledged(self) -> None:
        world = World()
        led, codes = world.led(), list[ErrorCode]()
        say(led, 0, 0, codes)
        assert codes == [ErrorCode.INVALID_RECORD_STATE]


def test_codes_of_clients() -> None:
    assert client_code(NONE) is NONE
    assert client_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is LATER
    assert client_code(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is ErrorCode.UNKNOWN_SERVER_ERROR
