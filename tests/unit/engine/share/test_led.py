"""A share-partition in service: its start, its writes and their failures, times, and waits."""

from __future__ import annotations

import logging

import pytest

from kbroker.config.share_settings import EARLIEST
from kbroker.coordinator.share.images import StateBatch
from kbroker.engine.share.led import LedSharePartition
from kbroker.engine.share.parts import client_code
from kbroker.errors import ErrorCode, KafkaError
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.replica.share.acknowledging import Acknowledgement
from kbroker.replica.share.acquiring import Wanted
from kbroker.replica.share.sessions import Place
from tests.unit.engine.share.world import (
    ALL,
    KEY,
    LATER,
    NONE,
    NOT_LEADER,
    SETTINGS,
    World,
    fetch,
    say,
    spans,
)


class Looks(DelayedOperation):
    """A fetch that waits."""

    def __init__(self, led: LedSharePartition, owner: int) -> None:
        super().__init__(100_000)
        self._led, self._owner = led, owner

    def try_complete(self) -> bool:
        return bool(fetch(self._led, self._owner)) and self.force_complete()

    def on_complete(self) -> None:
        pass

    def met(self, place: Place) -> None:
        """So it always looks."""

    def is_woken(self, place: Place) -> None:
        pass


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

    def test_state_of_lost_records_is_forgotten_by_two_writes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = World()
        world.log.append(10)
        with caplog.at_level(logging.WARNING, "kbroker.share"):
            led = world.ready(0, (StateBatch(0, 4, 0, 1), StateBatch(8, 14, 2, 1)))
        (line,) = (each.getMessage() for each in caplog.records)
        assert line == (
            "share group g was at offset 15 of orders-0, which ends at 10: its log has lost records"
            " -> the group gets those that come in their place"
        )
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

    def test_the_end_of_a_delay_wakes(self) -> None:
        world = World()
        world.settings = SETTINGS._replace(delay_ms=100)
        world.log.append(10)
        led = world.ready()
        fetch(led)
        codes: list[ErrorCode] = []
        say(led, 0, 9, codes, 2)
        world.persister.answer_write()
        assert codes == [ErrorCode.NONE]
        before = world.woken
        world.pass_ms(99)
        assert (world.woken, fetch(led, 2)) == (before, [])
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

    def test_how_much_there_is(self) -> None:
        world = World()
        led = world.led()
        assert led.readable(100) == (None, 0)  # its state is being read
        world.persister.answer_read(0)
        assert led.readable(100) == (0, 0)
        world.log.append(3)
        assert led.readable(100_000) == (0, len(world.log.batches[0][1]))
        assert led.readable(10) == (0, 10)
        fetch(led)
        assert led.readable(10) == (3, 0)
        led.end_session(1)
        assert led.readable(10) == (None, 10), "available again: not held back for more"
        led.end(LATER)
        with pytest.raises(KafkaError):
            led.readable(10)

    def test_a_fetch_that_has_met_a_read_of_nothing_does_not_look_again(self) -> None:
        """It would find the same; two fetches would wake each other for ever."""
        world = World()
        led = world.ready()

        def meanwhile() -> None:
            world.log.before_read = lambda: None
            assert fetch(led, 2) == []

        world.log.before_read = meanwhile
        before = world.woken
        assert fetch(led) == []
        assert world.woken == before
        assert len(world.watches) == 1

    def test_a_fetch_that_has_met_a_read_looks_again_where_something_has_changed(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)

        def meanwhile() -> None:
            led.end_session(1)
            assert fetch(led, 2) == []

        world.log.before_read = meanwhile
        before = world.woken
        assert fetch(led, 3) == []
        assert world.woken == before + 2
        world.log.before_read = lambda: None
        assert fetch(led, 2) == [(0, 9)]

    def test_locks_that_a_fetch_finds_ended_wake_the_others(self) -> None:
        world = World()
        world.log.append(10)
        world.log.append(10)
        led = world.ready()
        assert fetch(led) == [(0, 19)]
        world.clock.advance(SETTINGS.lock_ms)
        before = world.woken
        assert spans(led.fetch(2, Wanted(10, 10, exactly=True), 1 << 20)) == [(0, 9)]
        assert world.woken > before
        assert fetch(led, 3) == [(10, 19)]

    def test_locks_that_end_while_the_log_is_read_wake_the_others(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        assert fetch(led) == [(0, 9)]
        world.log.append(10)
        world.log.before_read = lambda: world.clock.advance(SETTINGS.lock_ms)
        before = world.woken
        assert fetch(led, 2) == [(10, 19)]
        assert world.woken > before
        world.log.before_read = lambda: None
        assert fetch(led, 3) == [(0, 9)]

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

    def test_a_fetch_that_comes_while_the_watch_ends_looks_again(self) -> None:
        """It has relied on the watch of the one that has just ended."""
        world = World()
        led = world.ready()
        fetch(led)
        looked: list[object] = []

        class Comes(Looks):
            def try_complete(self) -> bool:
                looked.append(fetch(led, 2))
                return False

        comes = Comes(led, 2)
        led.stop_watching = (  # type: ignore[method-assign]
            lambda: (
                (world.waiting.try_complete_else_watch(comes, [KEY]) and None)
                or LedSharePartition.stop_watching(led)
            )
        )
        world.leaders.stopped_waiting([KEY])
        assert len(looked) == 2
        world.run()
        assert len(looked) == 3

    def test_two_fetches_do_not_wake_each_other_without_end(self) -> None:
        """On two handlers: where one meets the other's read, it looks again only after an event."""
        world = World()
        led = world.ready()
        fetches = [Looks(led, number) for number in range(50)]
        for each in fetches:
            world.waiting.try_complete_else_watch(each, [KEY])
        world.run()
        world.log.before_read = lambda: fetch(led, 99)  # on another handler
        reads = world.log.reads
        world.leaders.wake(KEY)
        for _ in range(1_000):
            if world.soon:
                world.soon.popleft()()
        assert not world.soon
        assert world.log.reads - reads == len(fetches)

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


def test_codes_of_clients() -> None:
    assert client_code(NONE) is NONE
    assert client_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is LATER
    assert client_code(ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is ErrorCode.UNKNOWN_SERVER_ERROR
