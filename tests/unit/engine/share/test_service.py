"""Sessions of connections: what ends them, and when."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.engine.share.service import ShareService
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SHARE_SESSION_LEFT_MS_MAX
from kbroker.replica.share.sessions import Place, ShareSessions
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
        self.share = ShareService(
            self.world.leaders, self.sessions, self.world.waiting, lambda _: self.world.settings,
            self._await_end, self.world.soon.append, self.world.timer.call_later,
            self.world.figures,
        )  # fmt: skip

    def _await_end(self, request: Any, sends_no_more: bool, done: Any) -> None:
        self.ends[request.connection_id, sends_no_more] = done

    def open(self, member_id: str, connection: str) -> Any:
        session = self.share.open_session("g", member_id, Request(connection))
        self.sessions.change(session, {PLACE: True}, ())
        return session


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
    again = scene.open("m", "c")  # by a request that was not read before
    scene.ends["c", False](ErrorCode.NONE)
    assert not scene.sessions.lives(again)


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
