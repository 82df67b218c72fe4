from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from kbroker.log_lines import LogLines
from kbroker.peer.replica_fetch import Asked, Fetched, FetchLimits
from kbroker.protocol.wire import Reader
from kbroker.replica._replica import Replica
from kbroker.types import TopicPartition

TURN_OVER: Final = "turn over"

class FollowedState:
    name: TopicPartition
    topic_id: UUID
    replica: Replica
    key: bytes
    leader_epoch: int
    failures: int
    offline: bool
    leader_high_watermark: int
    changes: int
    _ended: bool
    _lines: LogLines
    _wake: Callable[[Replica], None]
    _lock: Any  # threading.Lock

class SessionState:
    positions: Final[dict[bytes, Asked]]
    changed: Final[dict[bytes, Asked]]
    forgotten: Final[dict[bytes, Asked]]
    session_id: int
    epoch: int
    named: list[bytes]
    is_full: bool

    def answered(self, session_id: int) -> None:
        """Of a `FetchSession`."""

class Refused(NamedTuple):
    """A partition whose records were not taken: why, or None where there was no whole batch."""

    partition: Any
    position: Asked
    error: Exception | None

class Taking:
    answered: Final[set[bytes]]
    key: Final[bytes]

    record_bytes: Final[int]

    def __init__(
        self,
        members: dict[bytes, Any],
        moved: dict[bytes, Any],
        session: SessionState,
        replica_id: int,
        limits: FetchLimits,
        monotonic_ms: Callable[[], int],
        turn_ms: int,
    ) -> None:
        """A lane's partitions and its session, in which it changes what has moved."""

    def usual_request(self, broker_epoch: int) -> bytes | None:
        """The body of the session's next request, as by `next_request`; None: that one is full, or
        has something to forget."""

    def begin(self, reader: Reader) -> None:
        """An answer, which the session has now. KafkaError: the leader refused the request as a
        whole; ProtocolError: it is no answer, or of another session. Then nothing is changed."""

    def next(self, in_one_call: bool, now_ms: int) -> Fetched | Refused | str | None:
        """A part of which there is more to say, or all without `in_one_call`; TURN_OVER; None: that
        was all. `now_ms`: the wall clock's, for the segments that begin."""

    def left_out(self) -> list[Any]:
        """The partitions that the request named and the answer did not. Of a request in a session
        they have no failures any more."""
