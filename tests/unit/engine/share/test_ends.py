"""The end of a session, of a group's last session, and of a share-partition; failures."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from kbroker.coordinator.share.images import StateBatch
from kbroker.coordinator.share.seams import ReadState
from kbroker.engine.share.spared_before import SparedBefore
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.replica.share.acquiring import Wanted
from kbroker.replica.share.spared import Span, Spared
from tests.unit.engine.share.world import (
    ALL,
    KEY,
    LATER,
    NONE,
    NOT_LEADER,
    SETTINGS,
    TOPIC,
    World,
    fetch,
    say,
)


def no_session() -> bool:
    return False


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

    def test_records_of_all_sessions_count_when_the_last_one_has_ended(self) -> None:
        """Also of a session that another one of its member has replaced, without the partition."""
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)
        led.retire(no_session)
        assert world.persister.answer_write()[1] == [StateBatch(0, 9, 0, 1)]
        world.run()
        assert world.leaders.find(KEY) is None

    def test_a_short_session_is_spared_twice_also_where_it_is_the_last_one_each_time(self) -> None:
        world = World()
        world.settings = SETTINGS._replace(deliveries=2, short_ms=1_000)
        world.log.append(10)
        counts = []
        for _ in range(4):
            led = world.ready()
            fetched = led.fetch(1, ALL, 1 << 20)
            assert fetched is not None
            counts.append(fetched.acquired[0].delivery_count)
            world.pass_ms(999)
            led.end_session(1)
            led.retire(no_session)
            if world.persister.writes:
                break
            world.run()
            assert world.leaders.find(KEY) is None
        assert counts == [1, 1, 1]
        assert world.persister.answer_write()[1] == [StateBatch(0, 9, 0, 1)]

    def test_it_ends_with_its_group_though_the_settings_cannot_be_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        fetch(led)
        monkeypatch.setattr(led, "settings", Mock(side_effect=ValueError("settings")))
        world.leaders.end_group("g", no_session)
        assert world.failures.count == 1
        assert world.leaders.find(KEY) is None
        monkeypatch.undo()
        again = world.ready()
        assert fetch(again) == [(0, 9)]

    def test_a_fetch_that_fails_before_its_read_keeps_no_other_from_reading(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        asked = [SETTINGS]
        world.read_settings = asked.pop
        with pytest.raises(IndexError):
            fetch(led)
        world.read_settings = None
        assert fetch(led) == [(0, 9)]

    def test_an_acknowledgement_is_answered_once_though_it_fails_when_its_write_has_begun(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its answer comes with the write, or with the end of the share-partition."""
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        monkeypatch.setattr(led, "_add", Mock(side_effect=[ValueError("figures"), None]))
        say(led, 0, 4, codes)
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
        world.persister.answer_write()
        assert len(codes) == 1
        assert world.failures.count == 1
        assert world.leaders.find(KEY) is None

    @pytest.mark.parametrize("step", ["_add", "_watcher"])
    def test_its_end_answers_acknowledgements_though_a_step_fails(
        self, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        world = World()
        world.log.append(10)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        say(led, 0, 4, codes)
        failing = Mock(side_effect=ValueError(step))
        failing.close.side_effect = ValueError(step)
        monkeypatch.setattr(led, step, failing)
        led.end(NOT_LEADER)
        assert codes == [NOT_LEADER]
        assert world.failures.count == 1
        assert world.leaders.find(KEY) is None

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

    def test_a_request_of_an_earlier_epoch_ends_none_of_a_later_one(self) -> None:
        world = World()
        world.log.leader_epoch = 4
        led = world.ready()
        world.log.leader_epoch = 3
        with pytest.raises(KafkaError) as raised:
            world.led()
        assert raised.value.code is NOT_LEADER
        assert world.leaders.find(KEY) is led
        world.log.leader_epoch = 4
        assert world.led() is led

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

    def test_it_ends_with_the_last_session_of_its_group(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        world.leaders.end_group("another", no_session)
        assert world.leaders.find(KEY) is led
        world.leaders.end_group("g", no_session)
        assert world.leaders.find(KEY) is None
        assert world.led() is not led
        world.leaders.end_group("g", no_session)  # while its state is being read
        assert world.leaders.find(KEY) is None

    def test_before_that_its_counts_are_written(self) -> None:
        """Or a record that ends all consumers of a group at once would be delivered for ever."""
        world = World()
        world.log.append(5)
        world.log.append(5)
        led = world.ready()
        led.fetch(1, Wanted(5, 5, exactly=True), 1 << 20)
        led.fetch(2, Wanted(5, 5, exactly=True), 1 << 20)
        led.end_session(1)
        led.end_session(2)
        world.leaders.end_group("g", no_session)
        assert world.persister.answer_write() == (0, [StateBatch(0, 4, 0, 1)], 0)
        assert world.leaders.find(KEY) is led
        assert world.persister.answer_write() == (0, [StateBatch(5, 9, 0, 1)], 0)
        assert world.leaders.find(KEY) is None

    def test_a_write_that_fails_does_not_keep_it(self) -> None:
        world = World()
        world.log.append(5)
        led, codes = world.ready(), list[ErrorCode]()
        fetch(led)
        say(led, 0, 4, codes)
        led.end_session(1)
        world.leaders.end_group("g", no_session)
        world.persister.answer_write(ErrorCode.REQUEST_TIMED_OUT)
        assert codes == [LATER]
        assert world.leaders.find(KEY) is None

    def test_a_session_that_comes_meanwhile_keeps_it(self) -> None:
        world = World()
        world.log.append(5)
        led = world.ready()
        fetch(led)
        led.end_session(1)
        world.leaders.end_group("g", no_session)
        assert world.led() is led
        world.persister.answer_write()
        assert world.leaders.find(KEY) is led

    def test_records_of_a_session_that_begins_at_that_moment_are_its_own(self) -> None:
        """The last one has ended, and the next one fetches before the share-partition learns it."""
        world = World()
        world.log.append(5)
        led, codes = world.ready(), list[ErrorCode]()
        assert fetch(led) == [(0, 4)]
        world.leaders.end_group("g", lambda: True)
        assert fetch(led, 2) == []
        say(led, 0, 4, codes)
        world.persister.answer_write()
        assert codes == [NONE]
        assert world.leaders.find(KEY) is led

    @pytest.mark.parametrize("is_read", [False, True])
    def test_it_does_not_end_under_a_session_that_begins(self, is_read: bool) -> None:
        """After the look at the next write, and before its end."""
        world = World()
        led = world.ready() if is_read else world.led()
        lock = led.lock

        class Lock:
            """A session relies on it as soon as the lock is free, once it is to end."""

            def __enter__(self) -> None:
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()
                if led._retires:
                    led._retires, stayed[:] = False, [True]

        stayed: list[bool] = []
        led.lock = Lock()  # type: ignore[assignment]
        world.leaders.end_group("g", no_session)
        assert stayed
        assert world.leaders.find(KEY) is led

    def test_a_write_that_fails_does_not_end_it_under_a_session_that_begins(self) -> None:
        world = World()
        world.log.append(5)
        led = world.ready()
        fetch(led)
        led.end_session(1)
        world.leaders.end_group("g", no_session)
        assert led.stay()
        world.persister.answer_write(ErrorCode.REQUEST_TIMED_OUT)
        assert world.leaders.find(KEY) is led
        world.pass_ms(1_000)
        assert world.persister.answer_write()[1] == [StateBatch(0, 4, 0, 1)]

    def test_it_ends_while_its_state_is_being_read(self) -> None:
        world = World()
        world.log.append(10)
        led = world.led()
        _, done = world.persister.reads.popleft()
        done(ReadState(NONE, None, 9, -1, ()))
        led.end(NOT_LEADER)
        world.run()
        assert not world.persister.writes

    def test_it_ends_between_its_first_writes(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready(0, (StateBatch(0, 4, 0, 1), StateBatch(8, 14, 2, 1)))
        led.end(NOT_LEADER)
        world.persister.answer_write()
        assert not world.persister.writes

    @pytest.mark.parametrize("part", ["persister", "call_soon"])
    def test_it_ends_where_its_state_cannot_be_read(self, part: str) -> None:
        """It would be read for ever, and no later fetch would make another."""
        world = World()

        def fails(*_: object) -> None:
            raise MemoryError

        if part == "persister":
            world.persister.read = fails  # type: ignore[assignment]
            led = world.led()
        else:
            led = world.led()
            world.call_soon = fails
            world.persister.answer_read(0)
        with pytest.raises(KafkaError) as raised:
            fetch(led)
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert world.leaders.find(KEY) is None
        assert world.failures.count >= 1

    def test_a_failure_after_records_were_acquired_gives_them_back(self) -> None:
        world = World()
        world.log.append(10)
        led = world.ready()
        later = world.timer.add

        def fails(*_: object) -> None:
            raise MemoryError

        world.timer.add = fails  # type: ignore[method-assign, assignment]
        with pytest.raises(MemoryError):
            fetch(led)
        world.timer.add = later  # type: ignore[method-assign]
        again = led.fetch(2, ALL, 1 << 20)
        assert again is not None
        assert again.acquired[0].delivery_count == 1
        world.pass_ms(SETTINGS.lock_ms)
        assert fetch(led, 3) == [(0, 9)], "the timer was set again"

    def test_before_its_state_was_read_nothing_is_acknowledged(self) -> None:
        world = World()
        led, codes = world.led(), list[ErrorCode]()
        say(led, 0, 0, codes)
        assert codes == [ErrorCode.INVALID_RECORD_STATE]


def test_spared_records_of_share_partitions_that_have_ended_are_bounded() -> None:
    kept, spans = SparedBefore(3), [Span(0, 0, 1), Span(2, 2, 1)]
    keys = [KEY._replace(partition=number) for number in range(3)]
    for key in keys:
        spared = Spared()
        spared.spans = list(spans[: 1 + key.partition])
        kept.keep(key, spared)
    kept.keep(keys[0], Spared())
    found = [kept.take(key) for key in keys]
    assert [each and len(each.spans) for each in found] == [None, None, 2]
