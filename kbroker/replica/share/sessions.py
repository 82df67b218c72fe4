"""Share sessions: which partitions a member of a share group reads over its connection (KIP-932).

A session belongs to a group and a member, and to the connection that opened it: it ends when that
connection does, or when the member closes it. The number of a session that has ended is never used
again, so records that were acquired in it are not those of a later one of the same member. A member
that opens another session before that keeps its records, as in Apache Kafka: the new session has
the number. A client does so when an answer was lost.

    epoch 0    opens a session, in place of the member's earlier one
    epoch n    the next request of it: n counts up from 1, and after the largest int32 from 1 again
    epoch -1   its last request

A request that is refused changes nothing: neither the session's epoch, nor its partitions, nor, if
it was to open one, the member's earlier session.

A session has one fetch that waits: a later one takes its place, and the earlier one is answered.

There are at most `group.share.max.share.sessions`. Where there are as many, a connection with fewer
sessions than another one gets its next one in place of one of that, the one without a request for
longest: a client can take all only with as many connections. SHARE_SESSIONS_OF_CONNECTION_MAX are
of one connection, with SHARE_SESSION_PARTITIONS_MAX partitions together. All sessions have
SHARE_SESSIONS_PARTITIONS_MAX partitions that the broker knew when they were named; others, which a
client can name without end, are SHARE_SESSIONS_UNKNOWN_MAX at most. A request beyond that is
answered SHARE_SESSION_LIMIT_REACHED. Any thread; one lock, a leaf.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import (
    SHARE_SESSION_PARTITIONS_MAX,
    SHARE_SESSIONS_OF_CONNECTION_MAX,
    SHARE_SESSIONS_PARTITIONS_MAX,
    SHARE_SESSIONS_UNKNOWN_MAX,
)

OPENS: Final = 0
CLOSES: Final = -1
# Why a session has ended.
CLOSED, DISCONNECTED, REPLACED, EVICTED = ENDS = "closed", "disconnected", "replaced", "evicted"
_EPOCH_MAX: Final = 2**31 - 1


class Place(NamedTuple):
    """A partition as a request names it."""

    topic_id: UUID
    partition: int


class Waiting(Protocol):
    """A request that waits for records."""

    def force_complete(self) -> bool:
        """Answer it now."""
        ...


class ShareSession:
    """One session; its owner is the request that has its epoch. `number` is above 0."""

    __slots__ = (
        "connection", "epoch", "group_id", "member_id", "number", "partitions", "waiting",
    )  # fmt: skip

    def __init__(self, group_id: str, member_id: str, number: int, connection: str) -> None:
        self.group_id: Final = group_id
        self.member_id: Final = member_id
        self.number: Final = number
        self.connection: Final = connection
        self.epoch = 1  # of its next request
        # In the order in which they are read, and whether the broker knew it; a dict, for the order
        # and for removal.
        self.partitions: dict[Place, bool] = {}
        self.waiting: Waiting | None = None


class Opened(NamedTuple):
    session: ShareSession
    replaced: ShareSession | None  # the member's earlier session: its fetch waits no more
    evicted: ShareSession | None  # of a connection with more sessions
    sends_no_more: bool  # its client, by now


class Change(NamedTuple):
    """Partitions that a request adds to its session, and whether the broker knows them; and those
    that it takes from the session, also where it adds them."""

    added: Mapping[Place, bool] = MappingProxyType({})
    forgotten: Iterable[Place] = ()

    def of(self, before: Mapping[Place, bool]) -> dict[Place, bool]:
        merged = {**before, **self.added}
        for place in self.forgotten:
            merged.pop(place, None)
        return merged


NO_CHANGE: Final = Change()


class _Connection:
    """It stays until the connection has ended, also without a session."""

    __slots__ = ("is_awaited", "places", "sends_no_more", "sessions")

    def __init__(self) -> None:
        # By their numbers, the one without a request for longest first.
        self.sessions: dict[int, ShareSession] = {}
        self.places = 0  # partitions of these
        self.sends_no_more = False
        self.is_awaited = False  # that it sends no more


class ShareSessions:
    """All sessions of the broker."""

    def __init__(self, sessions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._numbers = 0
        self._places = 0  # partitions of all sessions that the broker knew
        self._unknown = 0  # and those that it did not know
        self._numbered: dict[int, ShareSession] = {}
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_group: Counter[str] = Counter()
        self._connections: dict[str, _Connection] = {}
        # By how many sessions they have, where that is more than one.
        self._crowded: defaultdict[int, dict[_Connection, None]] = defaultdict(dict)
        self._ended = dict.fromkeys(ENDS, 0)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def places(self) -> int:
        """Partitions of all of them."""
        return self._places

    def ended(self) -> dict[str, int]:
        """How many have ended, by the cause."""
        with self._lock:
            return dict(self._ended)

    def meet(self, connection: str) -> bool:
        """Whether the connection is a new one. It is known until it has ended."""
        with self._lock:
            is_new = connection not in self._connections
            if is_new:
                self._connections[connection] = _Connection()
            return is_new

    def awaits_last_request(self, connection: str) -> bool:
        """Whether it will be known when the connection's client sends no more."""
        here = self._connections.get(connection)
        return here is not None and here.is_awaited

    def last_request_awaited(self, connection: str) -> None:
        """From now on, unless the connection has ended meanwhile."""
        with self._lock:
            here = self._connections.get(connection)
            if here is not None:
                here.is_awaited = True

    def open(
        self, group_id: str, member_id: str, connection: str, change: Change = NO_CHANGE
    ) -> Opened:
        """Epoch 0. KafkaError: there are too many, or the connection is not known (`meet`), or has
        ended since: a session of it would have no end."""
        key = (group_id, member_id)
        with self._lock:
            replaced, here = self._sessions.get(key), self._connections.get(connection)
            if here is None:
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
            has = len(here.sessions)
            evicted = None
            is_here = replaced is not None and replaced.connection == connection
            if has >= SHARE_SESSIONS_OF_CONNECTION_MAX and not is_here:
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            if replaced is None and len(self._sessions) >= self._sessions_max():
                evicted = self._one_of_more_than(has + 1)
            places, leaving = change.of({}), [each for each in (replaced, evicted) if each]
            self._check_room(connection, places, leaving)
            if replaced is not None:
                self._remove(replaced, REPLACED)
            if evicted is not None:
                self._remove(evicted, EVICTED)
            number = self._next_number() if replaced is None else replaced.number
            session = ShareSession(group_id, member_id, number, connection)
            self._sessions[key] = self._numbered[number] = session
            has = len(here.sessions)
            here.sessions[number] = session
            self._count(here, has)
            self._by_group[group_id] += 1
            self._put(session, places)
            return Opened(session, replaced, evicted, here.sends_no_more)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _one_of_more_than(self, count: int) -> ShareSession:
        """Of the connection with the most sessions. KafkaError: none has more."""
        for most in range(SHARE_SESSIONS_OF_CONNECTION_MAX, count, -1):
            for here in self._crowded.get(most, ()):
                return next(iter(here.sessions.values()))
        raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _count(self, here: _Connection, had: int) -> None:
        """Its sessions; it had so many."""
        self._crowded[had].pop(here, None)
        if len(here.sessions) > 1:
            self._crowded[len(here.sessions)][here] = None

    def next(
        self, group_id: str, member_id: str, epoch: int, change: Change = NO_CHANGE
    ) -> ShareSession:
        """Epoch n, with its change, or -1. KafkaError: there is no such session, this is not
        its next request, or there are too many partitions."""
        with self._lock:
            session = self._sessions.get((group_id, member_id))
            if session is None:
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
            if epoch != CLOSES:
                if epoch != session.epoch:
                    raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
                if change is not NO_CHANGE:
                    places = change.of(session.partitions)
                    self._check_room(session.connection, places, [session])
                    self._put(session, places)
                session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
            here = self._connections[session.connection].sessions
            here[session.number] = here.pop(session.number)
            return session

    def places_of(self, session: ShareSession) -> list[Place]:
        """All partitions of the session, in the order in which its request is to read them: the one
        that is the first is the last of its next request."""
        with self._lock:
            places = list(session.partitions)
            if len(places) > 1:
                # Another dict: who ends the session lists it without the lock, and a place that is
                # hashed, in Python, lets it.
                turned = session.partitions.copy()
                turned[places[0]] = turned.pop(places[0])
                session.partitions = turned
            return places

    def _check_room(
        self, connection: str, places: Mapping[Place, bool], leaving: Iterable[ShareSession]
    ) -> None:
        """Whether a session of the connection may have these partitions, in place of those of other
        sessions, or of its own. KafkaError: too many."""
        here = self._connections.get(connection)
        had = 0 if here is None else here.places
        more, known = _counted(places)
        unknown = more - known
        for each in leaving:
            count, of_known = _counted(each.partitions)
            more -= count if each.connection == connection else 0
            known -= of_known
            unknown -= count - of_known
        if (
            (more > 0 and had + more > SHARE_SESSION_PARTITIONS_MAX)
            or (known > 0 and self._places + known > SHARE_SESSIONS_PARTITIONS_MAX)
            or (unknown > 0 and self._unknown + unknown > SHARE_SESSIONS_UNKNOWN_MAX)
        ):
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _put(self, session: ShareSession, places: dict[Place, bool]) -> None:
        """The session has these partitions from now on."""
        (count, known), (had, had_known) = _counted(places), _counted(session.partitions)
        self._connections[session.connection].places += count - had
        self._places += known - had_known
        self._unknown += count - known - (had - had_known)
        session.partitions = places

    def wait(self, session: ShareSession, request: Waiting) -> Waiting | None:
        """The request waits for the session's records from now on; the one that has waited for them
        until now."""
        with self._lock:
            before = session.waiting
            if self.lives(session):
                session.waiting = request
            return before

    def has_waited(self, session: ShareSession, request: Waiting) -> None:
        with self._lock:
            if session.waiting is request:
                session.waiting = None

    def has_group(self, group_id: str) -> bool:
        """Whether the group has a session at this broker."""
        return group_id in self._by_group

    def close(self, session: ShareSession) -> bool:
        """It has ended; False where it had ended before."""
        with self._lock:
            return self._remove(session, CLOSED)

    def sends_no_more(self, connection: str) -> list[Waiting]:
        """No request of its sessions waits from now on; those that wait are to be answered."""
        with self._lock:
            here = self._connections.get(connection)
            if here is None:
                return []
            here.sends_no_more = True
            return [each.waiting for each in here.sessions.values() if each.waiting is not None]

    def has_sessions(self, connection: str) -> bool:
        here = self._connections.get(connection)
        return here is not None and bool(here.sessions)

    def close_connection(self, connection: str) -> list[ShareSession]:
        """The sessions that have ended with it."""
        with self._lock:
            here = self._connections.get(connection)
            if here is None:
                return []
            every = list(here.sessions.values())
            ended = [each for each in every if self._remove(each, DISCONNECTED)]
            del self._connections[connection]
            return ended

    def numbered(self, number: int) -> ShareSession | None:
        """The session with this number, if it lives."""
        return self._numbered.get(number)

    def receives(self, session: ShareSession) -> bool:
        """Whether it may get records: it lives, and its client can acknowledge them."""
        here = self._connections.get(session.connection)
        return here is not None and not here.sends_no_more and self.lives(session)

    def lives(self, session: ShareSession) -> bool:
        return self._sessions.get((session.group_id, session.member_id)) is session

    def _remove(self, session: ShareSession, cause: str) -> bool:
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        del self._numbered[session.number]
        self._ended[cause] += 1
        self._by_group[session.group_id] -= 1
        if not self._by_group[session.group_id]:
            del self._by_group[session.group_id]
        here = self._connections[session.connection]
        del here.sessions[session.number]
        self._count(here, len(here.sessions) + 1)
        count, known = _counted(session.partitions)
        here.places -= count
        self._places -= known
        self._unknown -= count - known
        return True


def _counted(places: Mapping[Place, bool]) -> tuple[int, int]:
    """How many, and how many of them the broker knows."""
    return len(places), sum(places.values())
