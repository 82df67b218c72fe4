"""Share sessions: which partitions a member of a share group reads over its connection (KIP-932).

A session belongs to a group and a member, and to the connection that opened it: it ends when that
connection does, when the member closes it, or when it opens another one. The number of a session is
never used again, so records that were acquired in an earlier session of the same member are not
those of a later one.

    epoch 0    opens a session; the member's earlier one ends
    epoch n    the next request of it: n counts up from 1, and after the largest int32 from 1 again
    epoch -1   its last request

There are at most `group.share.max.share.sessions`. Each has SHARE_SESSION_PARTITIONS_MAX partitions
at most, all of them together SHARE_SESSIONS_PARTITIONS_MAX: a request beyond that is answered
SHARE_SESSION_LIMIT_REACHED. Any thread; one lock, a leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SHARE_SESSION_PARTITIONS_MAX, SHARE_SESSIONS_PARTITIONS_MAX

OPENS: Final = 0
CLOSES: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class Place(NamedTuple):
    """A partition as a request names it."""

    topic_id: UUID
    partition: int


class ShareSession:
    """One session; its owner is the request that has its epoch. `number` is above 0."""

    __slots__ = ("connection", "epoch", "group_id", "member_id", "number", "partitions")

    def __init__(self, group_id: str, member_id: str, number: int, connection: str) -> None:
        self.group_id: Final = group_id
        self.member_id: Final = member_id
        self.number: Final = number
        self.connection: Final = connection
        self.epoch = 1  # of its next request
        # In the order in which they are read; a dict, for that and for removal.
        self.partitions: dict[Place, None] = {}


class Opened(NamedTuple):
    session: ShareSession
    ended: ShareSession | None  # the member's earlier session: its records are to be released
    is_first: bool  # of its connection


class ShareSessions:
    """All sessions of the broker."""

    def __init__(self, sessions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._numbers = 0
        self._places = 0  # partitions of all sessions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[str, dict[int, ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: str) -> Opened:
        """Epoch 0. KafkaError: there are too many."""
        key = (group_id, member_id)
        with self._lock:
            if key not in self._sessions and len(self._sessions) >= self._sessions_max():
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            ended = self._sessions.get(key)
            if ended is not None:
                self._remove(ended)
            self._numbers += 1
            session = ShareSession(group_id, member_id, self._numbers, connection)
            self._sessions[key] = session
            here = self._by_connection.setdefault(connection, {})
            here[session.number] = session
            return Opened(session, ended, len(here) == 1)

    def next(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Epoch n or -1. KafkaError: there is no such session, or this is not its next request."""
        with self._lock:
            session = self._sessions.get((group_id, member_id))
            if session is None:
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
            if epoch != CLOSES:
                if epoch != session.epoch:
                    raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
                session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
            return session

    def change(
        self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> list[Place]:
        """All partitions of the session then, in the order in which they are to be read: the one
        that was the first is the last of its next request. KafkaError: too many."""
        with self._lock:
            merged = {**session.partitions, **dict.fromkeys(added)}
            for place in forgotten:
                merged.pop(place, None)
            total = self._places + len(merged) - len(session.partitions)
            if len(merged) > SHARE_SESSION_PARTITIONS_MAX or total > SHARE_SESSIONS_PARTITIONS_MAX:
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            if self.lives(session):
                self._places = total
            places = list(merged)
            if len(places) > 1:
                del merged[places[0]]
                merged[places[0]] = None
            session.partitions = merged
            return places

    def close(self, session: ShareSession) -> bool:
        """It has ended; False where it had ended before."""
        with self._lock:
            return self._remove(session)

    def close_connection(self, connection: str) -> list[ShareSession]:
        """The sessions that have ended with it."""
        with self._lock:
            ended = list(self._by_connection.get(connection, {}).values())
            return [session for session in ended if self._remove(session)]

    def lives(self, session: ShareSession) -> bool:
        return self._sessions.get((session.group_id, session.member_id)) is session

    def _remove(self, session: ShareSession) -> bool:
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        self._places -= len(session.partitions)
        here = self._by_connection[session.connection]
        del here[session.number]
        if not here:
            del self._by_connection[session.connection]
        return True
