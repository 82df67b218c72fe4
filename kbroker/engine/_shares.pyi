"""What share-partitions need of the hot path; see _shares.pyx."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from kbroker._net import WrappedRequest
from kbroker.engine._hot import HotPath
from kbroker.errors import ErrorCode
from kbroker.replica._replica import Replica

@disjoint_base
class RecordsWatch:
    """A wait for records."""

    def cancel(self) -> bool:
        """End it without a call of `done`. False: it has ended, so `done` is called, or was."""

@disjoint_base
class HotShares:
    """Each `done` is called once, with NONE: now, or on a handler's thread."""

    def __init__(self, hot: HotPath) -> None: ...
    def await_records(
        self,
        replica: Replica,
        offset: int,
        is_committed: bool,
        count_bytes: int,
        timeout_ms: int,
        done: Callable[[ErrorCode], object],
    ) -> RecordsWatch:
        """Until a consumer can read so many bytes from the offset on, up to the last stable offset
        or the high watermark; until the partition is led elsewhere, or was deleted, or its log
        begins after the offset; or until the time is over."""

    def await_end(
        self,
        request: WrappedRequest,
        sends_no_more: bool,
        done: Callable[[ErrorCode], object],
    ) -> None:
        """Until the connection of a request that was not answered yet has ended, and all requests
        that came over it have been answered; with `sends_no_more` until its client sends no more,
        while there may be requests that it has sent before."""

    def has_left(self, request: WrappedRequest) -> bool:
        """Whether the client of a request that was not answered yet has ended its connection, or
        its side of it: then it may still read."""

    def call_soon(self, done: Callable[[ErrorCode], object]) -> None:
        """Until a handler is free; now, where nothing may wait any more."""
