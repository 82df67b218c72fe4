"""Sessions of connections: what ends them, and when."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.engine.share.service import ShareService
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SHARE_SESSION_LEFT_MS_MAX
from kbroker.replica.share import sessions as module
from kbroker.replica.share.sessions import Change, Place, ShareSessions
from tests.unit.engine.share.world import TOPIC, World, fetch

PLACE = Place(TOPIC, 0)


class Request:
    def __init__(self, connection_id: str) -> None:
        self.connection_id = connection_id


class Waiting:
    def __init__(self) -> None:
        self.ends = 0

    def force_complete(self) -> bool:
        self.ends += 1
        return True


class Scene:
    def __init__(self, sessions_max: int = 10) -> None:
        self.world = World()
        self.sessions = ShareSessions(lambda: sessions_max)
        self.ends: dict[tuple[str, bool], Any] = {}
        self.awaited = 0
        self.refuses = False
        self.refuses_left = False
        self.share = ShareService(
            self.world.leaders, self.sessions, self.world.waiting, lambda _: self.world.settings,
            self._await_end, self.world.soon.append, self.world.timer.call_later,
            self.world.figures, self.world.failures,
        )  # fmt: skip

    def _await_end(self, request: Any, sends_no_more: bool, done: Any) -> None:
        if self.refuses or (sends_no_more and self.refuses_left):
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self.awaited += 1
        self.ends[request.connection_id, sends_no_more] = done

    def open(self, member_id: str, connection: str) -> Any:
        change = Change({PLACE: True})
        return self.share.open_session("g", member_id, Request(connection), change)


def test_a_session_outlives_the_last_bytes_of_its_client() -> None:
    """Its last acknowledgements may not have been read."""
    scene = Scene()
    scene.world.log.append(3)
    led, session, request = scene.world.ready(), scene.open("m", "c"), Waiting()
    assert fetch(led, session.number) == [(0, 2)]
    scene.sessions.wait(session, request)
    scene.ends["c", True](ErrorCode.NONE)
    assert request.ends == 1
    assert scene.sessions.next("g", "m", 1) is session
    assert fetch(led, session.number + 1) == []
    scene.ends["c", False](ErrorCode.NONE)
    with pytest.raises(KafkaError):
        scene.sessions.next("g", "m", 2)


def test_a_session_does_not_outlive_its_client_for_long() -> None:
    """Other requests of its connection may wait, for a rebalance or for a log."""
    scene = Scene()
    scene.world.log.append(3)
    led, session = scene.world.ready(), scene.open("m", "c")
    assert fetch(led, session.number) == [(0, 2)]
    scene.ends["c", True](ErrorCode.NONE)
    scene.world.pass_ms(SHARE_SESSION_LEFT_MS_MAX - 1)
    assert fetch(led, session.number + 1) == []
    scene.world.pass_ms(1)
    assert fetch(led, session.number + 1) == [(0, 2)]
    scene.share.end_session(session)  # which has ended
    again = scene.open("m", "c")  # by a request that was not read before
    scene.world.pass_ms(SHARE_SESSION_LEFT_MS_MAX)
    assert scene.sessions.lives(again)
    scene.ends["c", True](ErrorCode.NONE)
    late = scene.open("n", "c")
    scene.world.pass_ms(SHARE_SESSION_LEFT_MS_MAX)
    assert not scene.sessions.lives(again)
    assert not scene.sessions.lives(late)
    scene.ends["c", False](ErrorCode.NONE)


def test_a_session_of_a_client_that_has_left_before_ends_soon() -> None:
    scene = Scene()
    scene.share.end_session(scene.open("m", "c"))
    scene.ends["c", True](ErrorCode.NONE)
    late = scene.open("m", "c")
    scene.world.pass_ms(SHARE_SESSION_LEFT_MS_MAX)
    assert not scene.sessions.lives(late)


def test_a_refused_session_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fetch goes on waiting, and its records stay its own."""
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 1)
    scene = Scene()
    scene.world.log.append(3)
    led, session, request = scene.world.ready(), scene.open("m", "c"), Waiting()
    assert fetch(led, session.number) == [(0, 2)]
    scene.sessions.wait(session, request)
    too_many = Change({PLACE: True, Place(TOPIC, 1): True})
    for connection in ("c", "d"):
        with pytest.raises(KafkaError) as raised:
            scene.share.open_session("g", "m", Request(connection), too_many)
        assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert request.ends == 0
    assert scene.sessions.next("g", "m", 1) is session
    assert fetch(led, session.number + 1) == []
    assert len(scene.ends) == 4
    for _ in range(3):  # the end of a connection is awaited once
        with pytest.raises(KafkaError):
            scene.share.open_session("g", "m", Request("d"), too_many)
    assert scene.awaited == 4


def test_a_session_whose_end_cannot_be_awaited_is_not_opened() -> None:
    scene = Scene()
    session, request = scene.open("m", "c"), Waiting()
    scene.sessions.wait(session, request)
    scene.refuses = True
    with pytest.raises(KafkaError):
        scene.open("m", "d")
    assert request.ends == 0
    assert scene.sessions.lives(session)
    scene.refuses = False
    scene.open("m", "d")
    assert request.ends == 1
    assert not scene.sessions.lives(session)
    assert ("d", False) in scene.ends


def test_the_end_of_a_connection_is_awaited_once_though_its_last_request_cannot_be() -> None:
    """Each wait is one of a bounded number, and lasts as long as the connection."""
    scene = Scene()
    scene.refuses_left = True
    for _ in range(3):
        with pytest.raises(KafkaError):
            scene.open("m", "c")
    assert scene.awaited == 1
    scene.refuses_left = False
    session = scene.open("m", "c")
    scene.open("n", "c")
    assert scene.awaited == 2
    scene.ends["c", True](ErrorCode.NONE)
    assert not scene.sessions.receives(session)
    scene.ends["c", False](ErrorCode.NONE)
    assert not scene.sessions.lives(session)
    assert scene.sessions.meet("c")


def test_records_of_an_evicted_session_are_available() -> None:
    scene = Scene(sessions_max=2)
    scene.world.log.append(3)
    led, session, request = scene.world.ready(), scene.open("m", "c"), Waiting()
    assert fetch(led, session.number) == [(0, 2)]
    scene.sessions.wait(session, request)
    scene.open("n", "c")
    other = scene.open("o", "d")
    assert request.ends == 1
    assert fetch(led, other.number) == [(0, 2)]


def test_none_is_evicted_for_a_session_that_is_refused() -> None:
    scene = Scene(sessions_max=2)
    some = [scene.open(member, "c") for member in ("m", "n")]
    scene.refuses = True
    with pytest.raises(KafkaError):
        scene.open("o", "d")
    assert all(map(scene.sessions.lives, some))
    scene.refuses = False
    scene.open("o", "d")
    assert list(map(scene.sessions.lives, some)) == [False, True]


def test_an_evicted_session_ends_whatever_fails_after_that() -> None:
    """Its records would stay with it until their locks end."""
    scene = Scene(sessions_max=2)
    scene.world.log.append(3)
    scene.share.end_session(scene.open("l", "d"))
    scene.ends["d", True](ErrorCode.NONE)
    led = scene.world.ready()
    session = scene.open("m", "c")
    scene.open("n", "c")
    assert fetch(led, session.number) == [(0, 2)]

    def fails(*_: object) -> None:
        raise MemoryError

    scene.share = scene.share._replace(call_later=fails)  # type: ignore[arg-type]
    with pytest.raises(MemoryError):
        scene.open("o", "d")
    assert fetch(led, session.number + 10) == [(0, 2)]


def test_sessions_of_a_connection_end_whatever_fails_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sessions know none of them any more: what is not done now is never done."""
    scene = Scene()
    scene.world.log.append(3)
    scene.open("l", "d")  # the group goes on
    led, one, other = scene.world.ready(), scene.open("m", "c"), scene.open("n", "c")
    assert fetch(led, other.number) == [(0, 2)]
    ends = scene.world.leaders.end_session

    def ended(session: Any) -> None:
        if session is one:
            raise MemoryError
        ends(session)

    monkeypatch.setattr(scene.world.leaders, "end_session", ended)
    scene.ends["c", False](ErrorCode.NONE)
    assert fetch(led, other.number + 10) == [(0, 2)]
    assert scene.world.failures.count == 1


def test_a_session_ends_at_each_partition_whatever_fails_at_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, ended = Scene(), list[int]()

    class Led:
        def __init__(self, index: int) -> None:
            self.index = index

        def end_session(self, owner: int) -> None:
            if self.index == 0:
                raise MemoryError
            ended.append(self.index)

    monkeypatch.setattr(scene.world.leaders, "find", lambda key: Led(key.partition))
    change = Change({Place(TOPIC, index): True for index in range(3)})
    scene.share.end_session(scene.share.open_session("g", "m", Request("c"), change))
    assert ended == [1, 2]
    assert scene.world.failures.count == 1


def test_an_answer_that_fails_leaves_the_others_and_the_end_of_their_sessions() -> None:
    class Failing(Waiting):
        def force_complete(self) -> bool:
            raise MemoryError

    scene = Scene()
    first, second = scene.open("m", "c"), scene.open("n", "c")
    request = Waiting()
    scene.sessions.wait(first, Failing())
    scene.sessions.wait(second, request)
    scene.ends["c", True](ErrorCode.NONE)
    assert request.ends == 1
    assert scene.world.failures.count == 1
    scene.world.pass_ms(SHARE_SESSION_LEFT_MS_MAX)
    assert not scene.sessions.lives(first) and not scene.sessions.lives(second)


def test_a_connection_that_has_ended_meanwhile_begins_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was known when a request of it looked."""
    scene = Scene()
    scene.share.end_session(scene.open("m", "c"))
    meet = scene.sessions.meet

    def met(connection: str) -> bool:
        is_new = meet(connection)
        scene.ends[connection, False](ErrorCode.NONE)
        return is_new

    monkeypatch.setattr(scene.sessions, "meet", met)
    with pytest.raises(KafkaError) as raised:
        scene.open("m", "c")
    assert raised.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(scene.sessions) == 0
