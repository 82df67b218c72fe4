"""What all share-partitions of a broker have in common: what they use, and the codes of the share
coordinator as clients get them. Values only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config.share_settings import ShareGroupSettings
    from kbroker.coordinator.share.images import SharePartition as Key
    from kbroker.coordinator.share.seams import Persister
    from kbroker.engine.share.dead_letters import Route
    from kbroker.engine.share.figures import ShareFigures
    from kbroker.engine.share.led import LedSharePartition
    from kbroker.engine.share.reading import Aborted
    from kbroker.engine.share.watching import AwaitRecords
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater
    from kbroker.types import TopicPartition

# Codes of the share coordinator, by the code that a client gets for them in Apache Kafka 4.3.
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# With one of these a write ends the share-partition.
GONE: Final = _FENCED | {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def client_code(code: ErrorCode) -> ErrorCode:
    """For a client whose request needed the share coordinator."""
    if code in _FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in _LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


class LedLog(Protocol):
    """The replica that leads, as a share-partition reads it."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None: ...

    def readable_bytes(
        self, offset: int, max_bytes: int = ..., *, read_committed: bool = ...
    ) -> int: ...

    def read(
        self,
        offset: int,
        max_bytes: int = ...,
        *,
        whole_first: bool = ...,
        read_committed: bool = ...,
    ) -> bytes: ...


class Parts(NamedTuple):
    """What all share-partitions of a broker have in common."""

    clock: Clock
    persister: Persister
    settings: Callable[[str], ShareGroupSettings]  # of a group, now
    call_later: CallLater
    call_soon: Callable[[Callable[[], object]], None]  # on a handler's thread
    await_records: AwaitRecords
    aborted: Aborted
    wake: Callable[[Key], object]  # the fetches that wait for a share-partition
    forget: Callable[[LedSharePartition], object]  # it is of no use any more
    failures: Failures
    figures: ShareFigures
    dead_letters: Route | None = None  # None: there are none, whatever a group says
