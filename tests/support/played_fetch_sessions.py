"""The sessions of a leader whose answers to Fetch are played: as `replica/_fetch_session.pyx`.

What a request names and forgets becomes what its session reads; what an answer would repeat is left
out. A session that is given comes with epoch 0 and is changed by requests in the order of epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.wire import Writer

SLOTS_MAX = 1_000
_DIVERGING_EPOCH_TAG = 0

PositionT = TypeVar("PositionT")


class Answered(NamedTuple):
    """What a follower knows of a partition from the last answer that had it."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int


class Read(NamedTuple):
    """One partition of an answer."""

    answered: Answered
    diverging: tuple[int, int] | None = None
    records: bytes = b""

    @classmethod
    def refused(cls, error: ErrorCode) -> Read:
        return cls(Answered(error, -1, -1))


def write_partition(writer: Writer, topic_id: UUID, partition: int, read: Read) -> None:
    """A topic of this one partition, as Fetch 13 and later have it."""
    writer.uuid(topic_id)
    writer.array(1)
    writer.int32(partition)
    writer.int16(read.answered.error)
    for number in (read.answered.high_watermark, -1, read.answered.log_start_offset):
        writer.int64(number)
    writer.array(None)
    writer.int32(-1)
    writer.bytes(read.records)
    if read.diverging is not None:
        tag = Writer(flexible=True)
        tag.int32(read.diverging[0])
        tag.int64(read.diverging[1])
        tag.tags()
        writer.tags({_DIVERGING_EPOCH_TAG: tag.getvalue()})
    else:
        writer.tags()
    writer.tags()


class PlayedSession(Generic[PositionT]):
    """`session_id` 0: of one request alone."""

    def __init__(self, session_id: int = 0) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.positions: dict[Hashable, PositionT] = {}
        self._answered: dict[Hashable, Answered] = {}

    def change(self, asked: Mapping[Hashable, PositionT], forgotten: Iterable[Hashable]) -> None:
        """In that order: who is named in both is forgotten."""
        self.positions.update(asked)
        for key in forgotten:
            self.positions.pop(key, None)
            self._answered.pop(key, None)

    def repeats(self, key: Hashable, answered: Answered, *, more: bool) -> bool:
        """Whether an answer may leave it out; `more`: records or a divergence."""
        return not more and answered.error is ErrorCode.NONE and self._answered.get(key) == answered

    def remember(self, key: Hashable, answered: Answered, *, records: bool) -> None:
        self._answered[key] = answered
        if records and key in self.positions:
            self.positions[key] = self.positions.pop(key)


class PlayedSessions(Generic[PositionT]):
    """Of one start of a leader; `new_id` must not repeat those of the start before."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sessions: dict[int, PlayedSession[PositionT]] = {}
        self.slots_max = SLOTS_MAX

    @property
    def ids(self) -> list[int]:
        return [*self._sessions]

    def session(self, session_id: int) -> PlayedSession[PositionT]:
        return self._sessions[session_id]

    def serve(
        self,
        session_id: int,
        epoch: int,
        asked: Mapping[Hashable, PositionT],
        forgotten: Iterable[Hashable],
    ) -> tuple[PlayedSession[PositionT], bool]:
        """The session that is read, and whether the request is a full one. KafkaError: 70, 71."""
        if epoch <= 0:
            self._sessions.pop(session_id, None)
            room = epoch == 0 and len(self._sessions) < self.slots_max
            session: PlayedSession[PositionT] = PlayedSession(self._new_id() if room else 0)
            session.change(asked, ())
            if room:
                self._sessions[session.session_id] = session
            return session, True
        known = self._sessions.get(session_id)
        if known is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if known.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        known.epoch += 1
        known.change(asked, forgotten)
        return known, False

    def drop(self) -> None:
        """As eviction does."""
        self._sessions.clear()


def refused_fetch(code: ErrorCode) -> bytes:
    """An answer that is an error as a whole."""
    writer = Writer(flexible=True)
    writer.int32(0)
    writer.int16(code)
    writer.int32(0)
    writer.array(0)
    writer.tags()
    return writer.getvalue()
