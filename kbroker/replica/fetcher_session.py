"""FetchSession: a follower's side of an incremental fetch session (KIP-227).

The leader keeps the positions of one session, so a request names only the changes: partitions that
join, whose fetch offset, log start or epoch is another, or that leave. A request that names nothing
still states the position of every partition of the session; the leader notes them all. Partitions
that an answer leaves out have nothing new.

A session begins with a full request, of epoch 0. So it does again wherever it is not certain that
both sides have the same: a lost connection, an answer that is none, a leader that does not know the
session or the epoch, a partition whose part of an answer was not taken in. A leader without room
for a session gives the id 0, and gets everything each time.

Pure, no clock, no lock: it belongs to one lane of a fetcher, and costs what changes.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.peer.replica_fetch import INITIAL_EPOCH, NO_SESSION_ID, Asked, FetchMetadata
from kbroker.protocol.wire import ProtocolError
from kbroker.replica._taking import SessionState

EPOCH_MAX: Final = 2**31 - 1
INITIAL: Final = FetchMetadata(NO_SESSION_ID, INITIAL_EPOCH)

# The session is not what we take it for; nothing else is wrong with the leader.
SESSION_ERRORS: Final = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip

# A topic's id and a partition, as an answer has them. It is looked up for each part of each answer,
# and the hash of a UUID is slow.
Key = bytes


def key_of(topic_id: UUID, partition: int) -> Key:
    return topic_id.bytes + partition.to_bytes(4, "big")


class SessionRequest(NamedTuple):
    """What a request says."""

    metadata: FetchMetadata
    asked: list[Asked]
    forgotten: list[tuple[UUID, int]]

    @property
    def is_full(self) -> bool:
        return self.metadata.epoch == INITIAL_EPOCH


class FetchSession(SessionState):
    """See the head of this file. `SessionState` has what `Taking` changes, too."""

    @property
    def next(self) -> FetchMetadata:
        """Which request of which session the next one is."""
        return FetchMetadata(self.session_id, self.epoch)

    def position(self, key: Key) -> Asked | None:
        """From where a partition is asked, as the next request leaves it."""
        return self.positions.get(key)

    def may_answer(self, key: Key) -> bool:
        """Whether the leader may know of it: it is asked, or has not been forgotten there yet."""
        return key in self.positions or key in self.forgotten

    def ask(self, asked: Asked) -> None:
        """A partition joins, or has this position now."""
        key = key_of(asked.topic_id, asked.partition)
        if key in self.forgotten:
            # One request cannot say both: a leader forgets a partition that is named and forgotten.
            # Else it would take its answer about the partition, which was not taken in, for known.
            self.begin_again()
        if self.positions.get(key) != asked:
            self.positions[key] = asked
            self.changed[key] = asked

    def forget(self, key: Key) -> None:
        """A partition leaves. It joins again if its whole state is to be sent."""
        asked = self.positions.pop(key, None)
        if asked is not None:
            self.changed.pop(key, None)
            self.forgotten[key] = asked

    def to_the_end(self, key: Key) -> None:
        """Of full requests, as leaders do with the partitions that they served in a session."""
        position = self.positions.pop(key, None)
        if position is not None:
            self.positions[key] = position

    def next_request(self) -> SessionRequest:
        """Then its answer is `answered`, or the session has to `begin_again`."""
        full = self.epoch == INITIAL_EPOCH
        asked = self.positions if full else self.changed
        self.named, self.is_full = [*asked], full
        left = [] if full else self.forgotten.values()
        forgotten = [(each.topic_id, each.partition) for each in left]
        request = SessionRequest(self.next, [*asked.values()], forgotten)
        self.changed.clear()
        self.forgotten.clear()
        return request

    def answered(self, session_id: int) -> None:
        """The last request was taken in. ProtocolError: it cannot have been."""
        if session_id == NO_SESSION_ID:
            self.session_id, self.epoch = INITIAL
        elif self.epoch == INITIAL_EPOCH:
            self.session_id, self.epoch = session_id, 1
        elif session_id == self.session_id:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        else:
            raise ProtocolError("the answer is of another fetch session")

    def begin_again(self, error: ErrorCode | None = None) -> None:
        """With a full request, which ends the session that there may be."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self.changed.clear()
        self.forgotten.clear()
