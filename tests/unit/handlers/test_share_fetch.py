"""A ShareFetch whose time is over while it reads: each record leaves once, or goes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.coordinator.share.images import SharePartition as Key
from kbroker.engine.share.service import ShareService
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.share_fetch import DelayedShareFetch
from kbroker.handlers.share_partitions import check_member
from kbroker.protocol import messages
from kbroker.replica.share.sessions import Change, Place, ShareSessions
from tests.unit.engine.share.world import TOPIC, MemoryLog, World

PLACE = Place(TOPIC, 0)


class OnePartition:
    """The share-partition of a world, which its client may use."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.words: dict[Place, str] = {}
        self.refused: dict[Place, ErrorCode] = {}

    def key(self, place: Place) -> Key:
        return Key("g", place.topic_id, place.partition)

    def led(self, place: Place, share: ShareService) -> Any:
        return self._world.led()

    def leader(self, place: Place, code: ErrorCode) -> tuple[int, int]:
        return 0, 0


class HandCall:
    def __init__(self, **how: Any) -> None:
        sizes = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        asked = {"share_session_epoch": 1, "max_bytes": 1 << 20, **sizes, **how}
        self.message = messages.share_fetch.Request(
            group_id="g", member_id="m", topics=[], forgotten_topics_data=[], **asked
        )
        self.answers: list[Any] = []
        self.errors: list[type] = []

    def __enter__(self) -> HandCall:
        return self

    def __exit__(self, kind: Any, *_: object) -> bool:
        if kind is not None:
            self.errors.append(kind)
        return True

    def answer_made(self, make: Any) -> bool:
        try:
            self.answers.append(make())
        except Exception as error:
            self.errors.append(type(error))
        return True

    def acquired(self) -> list[list[int]]:
        return [
            [each.first_offset for part in topic.partitions for each in part.acquired_records]
            for answer in self.answers
            for topic in answer.responses
        ]


class NoEndpoints:
    def of(self, node_ids: Any) -> list[Any]:
        return []


class Scene:
    def __init__(self, **how: Any) -> None:
        self.world = World()
        sessions = ShareSessions(lambda: 10)
        sessions.meet("c")
        self.session = sessions.open("g", "m", "c").session
        self.sessions = sessions
        world = self.world
        self.share = ShareService(
            world.leaders, sessions, world.waiting, lambda _: world.settings,
            lambda *how: None, world.soon.append, world.timer.call_later, world.figures,
            world.failures,
        )  # fmt: skip
        self.call = HandCall(**how)
        self.led = world.ready()
        self.fetch = self.made()

    def made(
        self,
        places: Sequence[Place] = (PLACE,),
        refused: Mapping[Place, ErrorCode] = MappingProxyType({}),
    ) -> DelayedShareFetch:
        partitions: Any = OnePartition(self.world)
        partitions.refused = refused
        call: Any = self.call
        endpoints: Any = NoEndpoints()
        return DelayedShareFetch(
            self.share, call, self.session, list(places), partitions, endpoints, 1 << 20
        )


def test_records_end_the_wait() -> None:
    scene = Scene()
    scene.fetch.begin({})
    assert scene.call.answers == []
    scene.world.log.append(3)
    scene.world.end_watch()
    scene.world.run()
    assert scene.call.acquired() == [[0]]
    assert scene.world.waiting.delayed == 0


def test_its_time_ends_the_wait() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.pass_ms(501)
    assert scene.call.acquired() == []
    assert len(scene.call.answers) == 1
    assert scene.world.cancelled == [True]


def test_its_time_is_over_while_it_reads() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    scene.world.log.before_read = lambda: scene.world.pass_ms(501)
    scene.world.end_watch()
    scene.world.run()
    assert scene.call.acquired() == [[0]]
    assert len(scene.call.answers) == 1
    assert scene.world.waiting.delayed == 0


def test_records_go_back_of_a_fetch_that_was_answered_while_it_read() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    scene.world.log.before_read = scene.fetch.force_complete
    scene.world.end_watch()
    scene.world.run()
    assert scene.call.acquired() == []
    assert len(scene.call.answers) == 1
    scene.world.log.before_read = lambda: None
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_records_of_a_session_that_has_ended_go_back() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    scene.world.log.before_read = lambda: scene.sessions.close(scene.session)
    scene.world.end_watch()
    scene.world.run()
    assert scene.call.acquired() == []
    assert len(scene.call.answers) == 1
    scene.world.log.before_read = lambda: None
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_a_fetch_does_not_outlive_its_session() -> None:
    scene = Scene(max_wait_ms=2**31 - 1)
    scene.fetch.begin({})
    scene.sessions.next("g", "m", 1, Change({PLACE: True}))
    scene.share.end_session(scene.session)
    scene.world.run()
    assert len(scene.call.answers) == 1
    assert scene.world.waiting.delayed == 0


def test_fewer_bytes_than_were_asked_for_leave_when_its_time_is_over() -> None:
    scene = Scene(min_bytes=100_000)
    scene.world.log.append(3)
    scene.fetch.begin({})
    assert scene.call.answers == []
    scene.world.pass_ms(501)
    assert scene.call.acquired() == [[0]]


def refusals(scene: Scene) -> list[int]:
    (answer,) = scene.call.answers
    return [part.error_code for topic in answer.responses for part in topic.partitions]


def test_a_share_partition_that_ends_answers_the_fetch_that_has_met_it() -> None:
    """It makes no other one: the state that cannot be read would be read without end."""
    scene = Scene(max_wait_ms=2**31 - 1)
    scene.fetch.begin({})
    scene.led.end(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    scene.world.run()
    assert refusals(scene) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not scene.world.persister.reads
    assert len(scene.world.leaders) == 0


def test_a_state_that_cannot_be_read_answers_the_fetch() -> None:
    scene = Scene()
    scene.led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scene.fetch.begin({})
    assert scene.call.answers == []
    scene.world.persister.answer_read(code=ErrorCode.INVALID_REQUEST)
    assert refusals(scene) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not scene.world.persister.reads


def test_an_error_of_the_log_ends_the_wait() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.before_read = _storage_error
    scene.world.end_watch()
    scene.world.run()
    assert refusals(scene) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_an_exception_is_an_error_of_its_partition() -> None:
    scene = Scene()
    scene.world.log.before_read = _nonsense
    scene.fetch.begin({})
    assert refusals(scene) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_records_go_back_where_the_answer_cannot_be_made() -> None:
    scene = Scene()
    scene.world.log.append(3)
    scene.fetch._endpoints = None  # type: ignore[assignment]
    scene.fetch.begin({})
    assert scene.call.errors == [AttributeError]
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_a_later_fetch_of_the_session_takes_the_place_of_the_earlier() -> None:
    scene = Scene()
    scene.fetch.begin({})
    later = scene.made()
    later.begin({})
    assert len(scene.call.answers) == 1
    assert scene.world.waiting.delayed == 1
    assert scene.session.waiting is later
    scene.world.pass_ms(501)
    assert len(scene.call.answers) == 2
    assert scene.session.waiting is None
    assert scene.world.waiting.delayed == 0


@pytest.mark.parametrize("wakes", [True, False])
def test_a_look_that_fails_is_the_answer(monkeypatch: pytest.MonkeyPatch, wakes: bool) -> None:
    """Its time has no second end: it would wait for ever."""
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    monkeypatch.setattr(scene.sessions, "receives", Mock(side_effect=ValueError("receives")))
    if wakes:
        scene.world.end_watch()
        scene.world.run()
    else:
        scene.world.pass_ms(501)
    assert scene.call.errors == [ValueError]
    assert scene.world.waiting.delayed == 0
    assert scene.session.waiting is None
    monkeypatch.undo()
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_a_look_that_fails_after_its_read_gives_the_records_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    receives = Mock(side_effect=[True, ValueError("receives")])
    monkeypatch.setattr(scene.sessions, "receives", receives)
    scene.world.end_watch()
    scene.world.run()
    assert scene.call.errors == [ValueError]
    monkeypatch.undo()
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_its_end_is_left_to_a_handler() -> None:
    """It may have thousands of partitions, and the timer's thread others to serve."""
    scene = Scene()
    scene.fetch.begin({})
    scene.world.clock.advance(501)
    scene.world.timer.advance()
    assert scene.call.answers == []
    scene.world.run()
    assert len(scene.call.answers) == 1
    assert scene.world.waiting.statistics()["expired_total"] == 1


def test_it_waits_for_bytes_in_all_partitions_together() -> None:
    scene = Scene(min_bytes=1_000)
    world = scene.world
    scene.fetch.begin({})
    assert world.watches[0][:3] == (0, False, 1_000)
    world.log.append(3)
    there = len(world.log.batches[0][1])
    world.end_watch()
    world.run()
    assert scene.call.answers == []
    assert world.log.reads == 0
    places = [PLACE, Place(TOPIC, 1)]
    two = scene.made(places=places)
    two.begin({})
    part = there + (1_000 - 2 * there) // 4
    assert world.watches[-1][:3] == (0, False, part)
    while not two.completed:
        world.log.append(1)
        for place in places:
            two.is_woken(place)
        two.check()
    assert 1_000 <= 2 * sum(len(data) for _, data in world.log.batches) < 1_200


class Many(OnePartition):
    """Share-partitions with a log each."""

    def __init__(self, world: World, places: Sequence[Place]) -> None:
        super().__init__(world)
        self.logs = {place: MemoryLog() for place in places}
        self.looks = 0
        for place in places:
            self.led(place, None).is_exhausted()
            world.persister.answer_read(0)
        world.run()

    def led(self, place: Place, share: Any) -> Any:
        found: Any = self._world.leaders.led(self.key(place), self.logs[place])
        fetch = type(found).fetch

        def counted(*how: Any) -> Any:
            self.looks += 1
            return fetch(found, *how)

        found.fetch = counted
        return found


def test_a_wake_costs_a_look_at_each_change() -> None:
    """Not all partitions of a fetch, and no look where nothing is left."""
    scene, places = Scene(), [Place(TOPIC, at) for at in range(1, 21)]
    many: Any = Many(scene.world, places)
    calls, endpoints = [HandCall() for _ in range(9)], NoEndpoints()
    for at, call in enumerate(calls):
        of_call: tuple[Any, Any] = call, endpoints
        scene.sessions.meet(f"c{at}")
        session = scene.sessions.open("g", f"m{at}", f"c{at}").session
        DelayedShareFetch(
            scene.share, of_call[0], session, places, many, of_call[1], 1 << 20
        ).begin({})
    many.looks = 0
    many.logs[places[3]].append(1)
    *_, end_watch = scene.world.watches[3]
    end_watch(ErrorCode.NONE)
    scene.world.run()
    assert many.looks == 2  # of the one that has it, and of one that finds nothing left
    assert sum(len(call.answers) for call in calls) == 1


def test_no_more_bytes_are_waited_for_than_may_leave() -> None:
    scene = Scene(min_bytes=100_000, max_bytes=50)
    scene.world.log.append(3)
    scene.fetch.begin({})
    assert scene.call.acquired() == [[0]]


def test_errors_of_the_request_end_no_wait() -> None:
    scene = Scene()
    wrong = Place(TOPIC, 9)
    fetch = scene.made(places=[wrong, PLACE], refused={wrong: ErrorCode.UNKNOWN_TOPIC_ID})
    fetch.begin({})
    assert scene.call.answers == []
    scene.world.log.append(3)
    scene.world.end_watch()
    scene.world.run()
    assert sorted(refusals(scene)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_request_with_nothing_else_is_answered_at_once() -> None:
    scene = Scene()
    scene.made(refused={PLACE: ErrorCode.UNKNOWN_TOPIC_ID}).begin({})
    assert refusals(scene) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_no_wait_is_longer_than_a_bound() -> None:
    assert Scene(max_wait_ms=2**31 - 1).fetch.delay_ms == 300_000


def _nonsense() -> None:
    raise ValueError


def listed(scene: Scene) -> list[int]:
    (answer,) = scene.call.answers
    return [part.partition_index for topic in answer.responses for part in topic.partitions]


def test_the_first_answer_of_a_session_lists_partitions_that_serve() -> None:
    scene = Scene(share_session_epoch=0, max_wait_ms=0)
    scene.fetch.begin({})
    scene.world.run()
    scene.world.pass_ms(1)
    assert listed(scene) == [0]


@pytest.mark.parametrize(
    "asked", [{"share_session_epoch": 1}, {"max_records": 0}, {"max_bytes": 0}]
)
def test_other_answers_without_records_list_none(asked: dict[str, int]) -> None:
    scene = Scene(**{"share_session_epoch": 0, "max_wait_ms": 0, **asked})
    scene.fetch.begin({})
    scene.world.run()
    scene.world.pass_ms(1)
    assert listed(scene) == []


def test_a_partition_that_does_not_serve_yet_is_not_listed() -> None:
    scene = Scene(share_session_epoch=0, max_wait_ms=0)
    scene.led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scene.fetch.begin({})
    scene.world.run()
    scene.world.pass_ms(1)
    assert listed(scene) == []


def _storage_error() -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


def _all() -> Any:
    from kbroker.replica.share.acquiring import Wanted

    return Wanted(500, 500)


@pytest.mark.parametrize(
    ("group", "member"),
    [(None, "m"), ("", "m"), (" ", "m"), ("g", None), ("g", ""), ("g", "x" * 37)],
)
def test_members_that_are_none(group: str | None, member: str | None) -> None:
    with pytest.raises(KafkaError) as raised:
        check_member(group, member)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert check_member("g", "x" * 36) == ("g", "x" * 36)


def test_records_count_for_the_quota_of_bytes() -> None:
    scene = Scene()
    charged: list[int] = []

    def charge(size: int) -> int:
        charged.append(size)
        return 70

    scene.fetch._charge = charge
    scene.world.log.append(3)
    scene.fetch.begin({})
    (answer,) = scene.call.answers
    assert answer.throttle_time_ms == 70
    assert charged == [len(scene.world.log.batches[0][1])]


def test_an_answer_without_records_costs_nothing() -> None:
    scene = Scene(max_wait_ms=0)
    scene.fetch._charge = lambda size: 1 // 0
    scene.fetch.begin({})
    scene.world.pass_ms(1)
    (answer,) = scene.call.answers
    assert answer.throttle_time_ms == 0
