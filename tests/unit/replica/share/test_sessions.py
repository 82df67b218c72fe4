"""Share sessions: epochs, connections and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.replica.share import sessions as module
from kbroker.replica.share.sessions import (
    CLOSES,
    NO_CHANGE,
    Change,
    Opened,
    Place,
    ShareSession,
    ShareSessions,
)

TOPIC = UUID(int=7)
PLACES = [Place(TOPIC, index) for index in range(5)]


def known(places: list[Place]) -> dict[Place, bool]:
    return dict.fromkeys(places, True)


def changed(
    sessions: ShareSessions,
    session: ShareSession,
    added: Mapping[Place, bool],
    forgotten: Sequence[Place],
) -> list[Place]:
    """The next request of the session; what it reads."""
    of = session.group_id, session.member_id
    assert sessions.next(*of, session.epoch, Change(added, forgotten)) is session
    return sessions.places_of(session)


class Met(ShareSessions):
    """Each connection is known."""

    def open(
        self, group_id: str, member_id: str, connection: str, change: Change = NO_CHANGE
    ) -> Opened:
        self.meet(connection)
        return super().open(group_id, member_id, connection, change)


def made(sessions_max: int = 3) -> ShareSessions:
    return Met(lambda: sessions_max)


def code_of(sessions: ShareSessions, epoch: int, member: str = "m") -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        sessions.next("g", member, epoch)
    return raised.value.code


def test_epochs_count_up() -> None:
    sessions = made()
    session = sessions.open("g", "m", "c").session
    for epoch in (1, 2, 3):
        assert sessions.next("g", "m", epoch) is session
    assert code_of(sessions, 3) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code_of(sessions, 5) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.next("g", "m", 4) is session


def test_after_the_largest_epoch_comes_1() -> None:
    sessions = made()
    session = sessions.open("g", "m", "c").session
    session.epoch = 2**31 - 1
    sessions.next("g", "m", 2**31 - 1)
    assert sessions.next("g", "m", 1) is session


def test_the_last_request() -> None:
    sessions = made()
    session = sessions.open("g", "m", "c").session
    assert sessions.next("g", "m", CLOSES) is session
    assert sessions.close(session)
    assert not sessions.close(session)
    assert code_of(sessions, CLOSES) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code_of(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_another_session_of_the_member_replaces_the_first() -> None:
    """With its number, and so its records."""
    sessions = made(1)
    first = sessions.open("g", "m", "c").session
    opened = sessions.open("g", "m", "d")
    assert opened.replaced is first
    assert opened.session.number == first.number
    assert not sessions.close(first)
    assert not sessions.lives(first)
    assert sessions.close_connection("c") == []
    assert sessions.close_connection("d") == [opened.session]
    assert len(sessions) == 0


def test_a_session_that_has_ended_leaves_no_number() -> None:
    sessions = made(1)
    first = sessions.open("g", "m", "c").session
    sessions.close(first)
    second = sessions.open("g", "m", "c")
    assert second.replaced is None
    sessions.close_connection("c")
    third = sessions.open("g", "m", "c")
    assert len({each.number for each in (first, second.session, third.session)}) == 3


def test_a_connection_has_several_sessions() -> None:
    sessions = made()
    one = sessions.open("g", "m", "c")
    other = sessions.open("h", "m", "c")
    assert sessions.close_connection("c") == [one.session, other.session]


def test_there_are_so_many_at_most() -> None:
    sessions = made(2)
    sessions.open("g", "m", "c")
    sessions.open("g", "n", "c")
    with pytest.raises(KafkaError) as raised:
        sessions.open("g", "o", "c")
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.open("g", "m", "c").replaced is not None


def test_a_connection_with_fewer_gets_one_of_a_connection_with_more() -> None:
    """Of the one with the most, which has made no request for longest."""
    sessions = made(5)
    of_one = [sessions.open("g", f"m{at}", "one").session for at in range(3)]
    for at in range(2):
        sessions.open("g", f"n{at}", "two")
    sessions.next("g", "m0", 1)
    opened = sessions.open("g", "o", "three")
    assert opened.evicted is of_one[1]
    assert not sessions.lives(of_one[1])
    assert len(sessions) == 5
    assert sessions.ended()["evicted"] == 1
    assert code_of(sessions, 1, "m1") is ErrorCode.SHARE_SESSION_NOT_FOUND
    # Each has two, or one that would have two: there is none with more.
    for connection in ("one", "two", "three"):
        with pytest.raises(KafkaError) as raised:
            sessions.open("g", "p", connection)
        assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    for connection in ("four", "five"):
        assert sessions.open("g", connection, connection).evicted is not None
    with pytest.raises(KafkaError):
        sessions.open("g", "six", "six")


def test_no_record_is_for_a_client_that_sends_no_more() -> None:
    sessions, request = made(), Request()
    session = sessions.open("g", "m", "c").session
    assert sessions.receives(session)
    sessions.wait(session, request)
    assert sessions.sends_no_more("c") == [request]
    assert sessions.lives(session)
    assert not sessions.receives(session)
    sessions.close_connection("c")
    assert sessions.sends_no_more("c") == []
    assert not sessions.receives(session)


def test_partitions_take_turns() -> None:
    sessions = made()
    session = sessions.open("g", "m", "c").session
    assert changed(sessions, session, known(PLACES[:3]), ()) == PLACES[:3]
    assert changed(sessions, session, {}, ()) == [PLACES[1], PLACES[2], PLACES[0]]
    assert changed(sessions, session, known(PLACES[3:4]), PLACES[:1]) == [
        PLACES[2],
        PLACES[1],
        PLACES[3],
    ]
    assert changed(sessions, session, {}, PLACES) == []


def test_partitions_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 3)  # of a connection
    monkeypatch.setattr(module, "SHARE_SESSIONS_PARTITIONS_MAX", 5)
    sessions = made()
    one, other = sessions.open("g", "m", "c").session, sessions.open("g", "n", "d").session
    changed(sessions, one, known(PLACES[:3]), ())
    for session, places in ((one, PLACES[:4]), (other, PLACES[:3])):
        with pytest.raises(KafkaError) as raised:
            changed(sessions, session, known(places), ())
        assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(one.partitions) == 3
    sessions.close(one)
    assert len(changed(sessions, other, known(PLACES[:3]), ())) == 3


def test_the_order_turns_while_others_list_the_partitions() -> None:
    """As who ends the session does, on another thread: Python hashes a place, and may switch."""
    sessions, listed = made(), list[int]()

    class Watched(UUID):
        def __hash__(self) -> int:
            listed.append(len(list(session.partitions)))
            return super().__hash__()

    session = sessions.open("g", "m", "c").session
    places = [Place(Watched(int=7), index) for index in range(3)]
    changed(sessions, session, known(places), ())
    listed.clear()
    assert sessions.places_of(session) == [*places[1:], places[0]]
    assert listed and set(listed) == {3}


def test_a_refused_request_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one has its epoch, and the same partitions."""
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 2)
    sessions = made()
    session = sessions.open("g", "m", "c", Change(known(PLACES[:2]))).session
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            sessions.next("g", "m", 1, Change(known(PLACES), PLACES[1:2]))
        assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.next("g", "m", 1) is session
    assert sessions.places_of(session) == PLACES[:2]


@pytest.mark.parametrize("connection", ["c", "d"])
def test_a_refused_session_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, connection: str
) -> None:
    """The member's earlier one goes on; none of others is evicted for it."""
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 2)
    sessions = made(3)
    others = [sessions.open("g", member, "e").session for member in ("n", "o")]
    first = sessions.open("g", "m", "c", Change(known(PLACES[:2]))).session
    for member in ("m", "p"):
        with pytest.raises(KafkaError) as raised:
            sessions.open("g", member, connection, Change(known(PLACES[:3])))
        assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert all(map(sessions.lives, others))
    assert sum(sessions.ended().values()) == 0
    assert sessions.next("g", "m", 1) is first
    assert sessions.places_of(first) == PLACES[:2]


def test_partitions_of_a_session_that_is_replaced_leave_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those of one that is evicted."""
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 3)
    monkeypatch.setattr(module, "SHARE_SESSIONS_PARTITIONS_MAX", 5)
    sessions = made(2)
    sessions.open("g", "m", "c", Change(known(PLACES[:3])))
    opened = sessions.open("g", "m", "c", Change(known(PLACES[2:5]), PLACES[4:]))
    assert sessions.places_of(opened.session) == PLACES[2:4]
    sessions.open("g", "n", "c", Change(known(PLACES[:1])))
    evicting = sessions.open("g", "o", "d", Change(known(PLACES[:3])))
    assert evicting.evicted is opened.session
    assert sessions.places == 4


def test_the_sessions_of_a_connection_share_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARE_SESSION_PARTITIONS_MAX", 3)
    sessions = made()
    one, other = sessions.open("g", "m", "c").session, sessions.open("g", "n", "c").session
    changed(sessions, one, known(PLACES[:3]), ())
    with pytest.raises(KafkaError) as raised:
        changed(sessions, other, known(PLACES[:1]), ())
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    changed(sessions, one, {}, PLACES[:1])
    assert changed(sessions, other, known(PLACES[:1]), ()) == PLACES[:1]


def test_partitions_that_are_not_known_are_not_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARE_SESSIONS_PARTITIONS_MAX", 2)
    sessions = made()
    one, other = sessions.open("g", "m", "c").session, sessions.open("g", "n", "d").session
    changed(sessions, one, dict.fromkeys(PLACES, False), ())
    changed(sessions, other, known(PLACES[:2]), ())
    with pytest.raises(KafkaError):
        changed(sessions, other, known(PLACES[:3]), ())
    sessions.close(one)
    sessions.close(other)
    assert sessions._places == 0


def test_a_connection_has_so_many_sessions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARE_SESSIONS_OF_CONNECTION_MAX", 2)
    sessions = made(100)
    for member in ("m", "n", "m"):  # one takes the place of its earlier one
        sessions.open("g", member, "c")
    with pytest.raises(KafkaError) as raised:
        sessions.open("g", "o", "c")
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open("g", "o", "d")
    with pytest.raises(KafkaError):
        sessions.open("g", "o", "c")  # it would be the third


def test_no_session_begins_on_a_connection_that_has_ended() -> None:
    """A request that found it known comes too late: the session would have no end."""
    sessions = ShareSessions(lambda: 3)
    sessions.meet("c")
    first = sessions.open("g", "m", "c").session
    sessions.close_connection("c")
    for member in ("m", "n"):
        with pytest.raises(KafkaError) as raised:
            sessions.open("g", member, "c")
        assert raised.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not sessions.lives(first) and len(sessions) == 0


def test_a_connection_is_new_once() -> None:
    """Whatever sessions it opens and closes: its end is awaited once."""
    sessions, new = made(), []
    for _ in range(3):
        new.append(sessions.meet("c"))
        sessions.close(sessions.open("g", "m", "c").session)
    assert new == [True, False, False]
    assert sessions.close_connection("c") == []
    assert sessions.meet("c")


def test_whether_a_group_has_a_session() -> None:
    sessions = made()
    one, other = sessions.open("g", "m", "c").session, sessions.open("g", "n", "d").session
    sessions.close(one)
    assert sessions.has_group("g")
    sessions.open("g", "n", "e")
    assert sessions.has_group("g")
    sessions.close_connection("e")
    assert not sessions.lives(other)
    assert not sessions.has_group("g")


class Request:
    def force_complete(self) -> bool:
        return True


def test_one_request_of_a_session_waits() -> None:
    sessions = made()
    session = sessions.open("g", "m", "c").session
    one, other = Request(), Request()
    assert sessions.wait(session, one) is None
    assert sessions.wait(session, other) is one
    sessions.has_waited(session, one)
    assert session.waiting is other
    sessions.has_waited(session, other)
    assert session.waiting is None
    sessions.close(session)
    assert sessions.wait(session, one) is None
    assert session.waiting is None


def test_partitions_that_are_not_known_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all connections together, beside that of known ones."""
    monkeypatch.setattr(module, "SHARE_SESSIONS_UNKNOWN_MAX", 4)
    sessions = made()
    one, other = sessions.open("g", "m", "c").session, sessions.open("g", "n", "d").session
    changed(sessions, one, dict.fromkeys(PLACES[:3], False), ())
    with pytest.raises(KafkaError) as raised:
        changed(sessions, other, dict.fromkeys(PLACES[:2], False), ())
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    changed(sessions, other, known(PLACES[:4]), ())
    changed(sessions, one, known(PLACES[:0]), PLACES[:1])
    sessions.close(one)
    changed(sessions, other, dict.fromkeys(PLACES[:4], False), ())
    sessions.close_connection("d")
    assert (sessions._places, sessions._unknown) == (0, 0)


def test_a_session_is_found_by_its_number_while_it_lives() -> None:
    sessions = made()
    first = sessions.open("g", "m", "c").session
    second = sessions.open("g", "m", "d").session
    assert second.number == first.number
    assert sessions.numbered(first.number) is second
    sessions.close(first)
    assert sessions.numbered(first.number) is second
    sessions.close(second)
    assert sessions.numbered(first.number) is None
