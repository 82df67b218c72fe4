"""Writes that wait for their followers, in the real compiled parking (`kbroker/engine`).

A coordinator's write is parked without a request, so it needs no socket: `await_followers` lists it
on its partition, `wake` counts its followers again, `serve` returns with the writes that are
settled. The compiled code decides whether the high watermark has passed a write, whether this
broker has led all the time and whether enough replicas are in sync. Produces wait in the same
lists. A deadline there is one of the machine's clock, so here it is never, and the loop's time ends
the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker._net import SocketServer
from kbroker.engine._hot import HotPath
from kbroker.engine._shares import HotShares
from kbroker.errors import ErrorCode
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from tests.simulation.loop import WAITS, Process

if TYPE_CHECKING:
    from kbroker.engine._shares import RecordsWatch

_NEVER_MS: Final = 2**31 - 1
Settled = Callable[[ErrorCode], object]


def _hot_path() -> HotPath:
    """Of a server that listens nowhere."""
    server = SocketServer(
        processors=1,
        queued_requests_max=1,
        queued_bytes_max=-1,
        request_bytes_max=1 << 20,
        idle_ms_max=0,
        connections_max=0,
        connections_per_ip_max=0,
        pipelined=False,
        pipelined_requests_max=1,
        pipelined_bytes_max=1,
        pipelined_total_bytes_max=1,
        unsent_bytes_max=1,
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    )
    hot = HotPath(
        server, TopicTable(), session_slots_max=1, session_eviction_ms_min=1, fetch_bytes_max=1
    )
    hot.watch_deadline = lambda tick: None
    return hot


class Watched:
    """A share-partition's wait for records."""

    def __init__(self, waits: Waits, watch: RecordsWatch) -> None:
        self._waits = waits
        self._watch = watch

    def cancel(self) -> bool:
        return self._waits.cancel(self._watch)


class Waits:
    """Of one start of a broker. Codes are a coordinator's."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._hot: HotPath | None = None  # made for the first
        self._handler = -1
        self._parked = 0
        self._open: set[int] = set()
        self._last = 0

    def __len__(self) -> int:
        """The number of waits that have not been answered yet."""
        return len(self._open)

    def begin(
        self, replica: Replica, last_offset: int, led_since: int, timeout_ms: int, done: Settled
    ) -> None:
        """Has `done` called once, now or later."""
        end = self._opened(timeout_ms, ErrorCode.COORDINATOR_NOT_AVAILABLE, done)
        self._park(lambda hot: hot.await_followers(replica, last_offset, led_since, _NEVER_MS, end))

    def begin_deletion(self, replica: Replica, offset: int, timeout_ms: int, done: Settled) -> None:
        """The same, until the logs of all live replicas begin there."""
        end = self._opened(timeout_ms, ErrorCode.REQUEST_TIMED_OUT, done)
        self._park(lambda hot: hot.await_low_watermark(replica, offset, _NEVER_MS, end))

    def begin_records(
        self, replica: Replica, offset: int, is_committed: bool, count_bytes: int, done: Settled
    ) -> Watched:
        """The same, until there are records to read, and without an end in time."""
        hot = self._opened_hot()
        watch = HotShares(hot).await_records(
            replica, offset, is_committed, count_bytes, _NEVER_MS, done
        )
        self._parked = hot.statistics()["parked_now"]
        return Watched(self, watch)

    def cancel(self, watch: RecordsWatch) -> bool:
        if self._hot is None or not watch.cancel():
            return False
        self._parked -= 1
        return True

    def _park(self, wait: Callable[[HotPath], object]) -> None:
        def park() -> None:
            hot = self._opened_hot()
            wait(hot)
            self._parked = hot.statistics()["parked_now"]

        self._process.work(park, WAITS)

    def _opened_hot(self) -> HotPath:
        if self._hot is None:
            self._hot = _hot_path()
            self._handler = self._hot.add_worker()
        return self._hot

    def _opened(self, timeout_ms: int, late: ErrorCode, done: Settled) -> Settled:
        """One more wait, which ends with `late`."""
        self._last += 1
        number = self._last
        self._open.add(number)

        def end(code: ErrorCode) -> None:
            if number in self._open:
                self._open.remove(number)
                done(code)

        self._process.later(timeout_ms, lambda: end(late), WAITS)
        return end

    def wake(self, replica: Replica) -> None:
        """It has moved, or is led elsewhere."""
        self._process.work(lambda: self._wake(replica), WAITS)

    def _wake(self, replica: Replica) -> None:
        if self._parked and self._hot is not None:
            self._hot.wake(replica)
            self._answer_settled()

    def _answer_settled(self) -> None:
        """What is called with one may cancel, or begin, another wait: all are taken first."""
        settled: list[tuple[Settled, ErrorCode]] = []
        while self._hot is not None and self._hot.statistics()["parked_now"] < self._parked:
            self._hot.serve(self._handler)  # a wait is settled, so this returns
            taken = self._hot.take_settled(self._handler)
            self._parked -= len(taken)
            settled += taken
        for end, code in settled:
            end(code)

    def close(self) -> None:
        """No wait is answered any more."""
        self._open.clear()
        if self._hot is not None:
            self._hot.close_parked()
            self._answer_settled()
            self._hot = None
