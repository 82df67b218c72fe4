"""A ShareFetch whose time is over while it reads: each record leaves once, or goes back."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.share.images import SharePartition as Key
from kbroker.engine.share.service import ShareService
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.share_fetch import DelayedShareFetch
from kbroker.handlers.share_partitions import check_member
from kbroker.protocol import messages
from kbroker.replica.share.sessions import Place, ShareSessions
from tests.unit.engine.share.world import TOPIC, World

PLACE = Place(TOPIC, 0)


class OnePartition:
    """The share-partition of a world, which its client may use."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.words: dict[Place, str] = {}

    def key(self, place: Place) -> Key:
        return Key("g", place.topic_id, place.partition)

    def led(self, place: Place, share: ShareService) -> Any:
        return self._world.led()

    def leader(self, place: Place, code: ErrorCode) -> tuple[int, int]:
        return 0, 0


class HandCall:
    def __init__(self, **how: Any) -> None:
        sizes = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 500, "batch_size": 500, **how}
        self.message = messages.share_fetch.Request(
            group_id="g", member_id="m", share_session_epoch=1, topics=[],
            forgotten_topics_data=[], **sizes,
        )  # fmt: skip
        self.answers: list[Any] = []

    def __enter__(self) -> HandCall:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def answer_made(self, make: Any) -> None:
        self.answers.append(make())

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
        self.session = sessions.open("g", "m", "c").session
        self.sessions = sessions
        world = self.world
        self.share = ShareService(
            world.leaders, sessions, world.waiting, lambda _: world.settings,
            lambda request, done: None, world.soon.append, world.timer.call_later,
        )  # fmt: skip
        self.call = HandCall(**how)
        self.led = world.ready()
        of_world: Any = OnePartition(world)
        call: Any = self.call
        endpoints: Any = NoEndpoints()
        self.fetch = DelayedShareFetch(
            self.share, call, self.session, [PLACE], of_world, endpoints, 1 << 20
        )


def test_records_end_the_wait() -> None:
    scene = Scene()
    scene.fetch.begin({})
    assert scene.call.answers == []
    scene.world.log.append(3)
    scene.world.leaders.wake(Key("g", TOPIC, 0))
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


def test_records_that_were_read_too_late_go_back() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.world.log.append(3)
    scene.world.log.before_read = lambda: scene.world.pass_ms(501)
    scene.world.leaders.wake(Key("g", TOPIC, 0))
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
    scene.world.leaders.wake(Key("g", TOPIC, 0))
    scene.world.run()
    assert scene.call.acquired() == []
    assert len(scene.call.answers) == 1
    scene.world.log.before_read = lambda: None
    (again,) = scene.led.fetch(9, _all(), 1 << 20).acquired  # type: ignore[union-attr]
    assert again.delivery_count == 1


def test_a_fetch_does_not_outlive_its_session() -> None:
    scene = Scene(max_wait_ms=2**31 - 1)
    scene.fetch.begin({})
    scene.share.sessions.change(scene.session, [PLACE], ())
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


def test_a_partition_that_is_refused_ends_the_wait() -> None:
    scene = Scene()
    scene.fetch.begin({})
    scene.led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scene.world.persister.writes.clear()
    scene.world.run()  # another one is being read
    scene.world.persister.answer_read(code=ErrorCode.FENCED_LEADER_EPOCH)
    scene.world.run()
    scene.world.log.before_read = _storage_error
    led = scene.world.ready()
    assert led.phase.name == "ACTIVE"
    scene.world.leaders.wake(Key("g", TOPIC, 0))
    scene.world.run()
    (answer,) = scene.call.answers
    assert [part.error_code for part in answer.responses[0].partitions] == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]


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
