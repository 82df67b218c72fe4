"""The broker as tests run it: the same one, with faults, a trace and a clock that can be moved.

How a fault reaches the hot path: it does not. An API with a rule (or every API, while tracing is
on) is taken out of the table by which a request is hot, so its requests come to Python, one by one;
there they are noted, delayed, dropped or answered with an error, and whatever is to be served goes
back into the very C functions that would have had it. Without a rule nothing is different, and the
broker that people run has not a line of this. See docs/adr/0021-faults-beside-the-hot-path.md.

`control` is the one way in: a request as a dictionary, an answer as another. It is called by the
control connection's thread (control.py) or, for a broker in the test's own process, by the test.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, cast

from kbroker._net import WrappedRequest
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, InvariantError
from kbroker.handlers.registry import REGISTRY
from kbroker.metadata.controller import Controller
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.controller.events import TopicsCallback
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from kbroker.server.broker import Broker, Dispatch, ServeAdmin
from kbroker.server.lifecycle import nothing
from kbroker.server.sockets import HOT, is_hot, set_hot
from kbroker.testing import failures
from kbroker.testing.faults import INSPECTOR_CLIENT_ID, Fault, Faults, Trace, Unanswered
from kbroker.testing.hanging_files import HangingFiles
from kbroker.testing.held_markers import HeldMarkers
from kbroker.testing.shifted_clock import ShiftedClock
from kbroker.types import ApiKey

_FAILURES: Final[dict[int, Any]] = {
    ApiKey.PRODUCE: failures.produce_failure,
    ApiKey.FETCH: failures.fetch_failure,
}
DECISION_TIMEOUT_S: Final = 60.0
_MESSAGE: Final = "a test wants it so"


class InspectedBroker(Broker):
    _make_transactions = HeldMarkers

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: Path,
        ready_file: Path | None = None,
        serve_admin: ServeAdmin | None = None,
        before_logs: Callable[[], None] = nothing,
    ) -> None:
        self._shifted = ShiftedClock()
        super().__init__(
            config, data_dir, ready_file, serve_admin, before_logs, clock=self._shifted
        )
        self._faults = Faults()
        self._files = HangingFiles()
        self._trace = Trace()
        self._tracing = False
        self._dispatch_cold: Dispatch = _not_set
        self._heat_lock = threading.Lock()

    # --- requests, on a handler's thread ----------------------------------------------------------

    def _dispatcher(self, dispatch: Dispatch) -> Dispatch:
        self._dispatch_cold = dispatch
        return self._inspect

    def _inspect(self, request: WrappedRequest) -> None:
        # What the hot path has passed on itself was inspected when it came.
        if request.client_id == INSPECTOR_CLIENT_ID or self._came_back(request):
            self._serve(request)
            return
        fault = None
        if request.frames == 1 and not self._goes_on(request):
            fault = self._faults.take(request.api_key, request.client_id)
            if fault is not None and fault.used_up:
                self._cool_and_heat()
        self._trace.note(request, _fault_text(fault))
        if fault is None:
            self._serve(request)
        elif fault.delay_ms > 0:
            self._timer.call_later(
                round(fault.delay_ms), lambda: self._fail_or_serve(request, fault)
            )
        else:
            self._fail_or_serve(request, fault)

    def _goes_on(self, request: WrappedRequest) -> bool:
        """Whether it is a Fetch that could not tell of an error, for want of partitions."""
        return (
            request.api_key == ApiKey.FETCH
            and any(key == ApiKey.FETCH for key in self._faults.api_keys())
            and _is_served(request)
            and not failures.names_something(request)
        )

    def _fail_or_serve(self, request: WrappedRequest, fault: Fault) -> None:
        if fault.drop:
            request.close_connection("a test wants it so")
        elif fault.error is not None:
            self._fail(request, fault.error)
        elif fault.lost:
            self._dispatch_cold(cast("WrappedRequest", Unanswered(request)))
        else:
            if fault.throttle_ms:
                request.throttle(fault.throttle_ms)
            self._serve(request)

    def _fail(self, request: WrappedRequest, error: ErrorCode) -> None:
        api = REGISTRY.get(request.api_key)
        failure = _FAILURES.get(request.api_key) or (api.failure if api is not None else None)
        if failure is None or not _is_served(request):
            self._serve(request)
            return
        try:
            body = failure(request, error, _MESSAGE)
        except ProtocolError:
            self._serve(request)  # the broker knows what to do with such bytes
            return
        if body is None:
            request.close_connection("a test wants an error, and there is no answer to tell it")
        else:
            request.respond(body)

    def _serve(self, request: WrappedRequest) -> None:
        returns = request.reason == "cold" and _is_served(request)
        if not returns or not is_hot(ApiKey(request.api_key), request.api_version):
            self._dispatch_cold(request)
            return
        cold, ticks = self._hot.pass_on(request)
        for tick in ticks:
            self._deadlines.watch(tick)
        for each in cold:
            self._dispatch_cold(each)
            each.note_waiting()

    @staticmethod
    def _came_back(request: WrappedRequest) -> bool:
        return request.reason != "cold"

    def _cool_and_heat(self) -> None:
        """What has a rule, or is traced, is for Python; everything else is as ever."""
        with self._heat_lock:
            watched = self._faults.api_keys()
            for key in HOT:
                if self._tracing or key in watched:
                    self._server.set_cold(key)
                else:
                    set_hot(self._server, key)

    # --- control ----------------------------------------------------------------------------------

    def control(self, asked: dict[str, Any]) -> Any:
        """One question or order of the test; ValueError for one that is not known."""
        what = asked.pop("op")
        order = getattr(self, f"_do_{what}", None)
        if order is None:
            raise ValueError(f"no such order: {what}")
        return order(**asked)

    def _do_on(self, *, api_key: int, error: int | None, **fields: Any) -> int:
        code = None if error is None else ErrorCode(error)
        number = self._faults.add(api_key, error=code, **fields)
        self._cool_and_heat()
        return number

    def _do_off(self, *, number: int | None) -> None:
        self._faults.remove(number)
        self._cool_and_heat()

    def _do_create_topics(self, *, topics: dict[str, int], configs: dict[str, str]) -> list[Any]:
        """Straight to the controller, as its handler would ask."""
        wanted = [NewTopic(name, partitions=n, configs=configs) for name, n in topics.items()]
        return self._decided(lambda c, done: c.create_topics(wanted, False, done))

    def _do_delete_topics(self, *, names: list[str]) -> list[Any]:
        return self._decided(lambda c, done: c.delete_topics(names, done))

    def _decided(self, ask: Callable[[Controller, TopicsCallback], None]) -> list[Any]:
        """[name, error code, message] for each topic, once it is published."""
        if self._controller is None:
            raise InvariantError("a broker that is ready has a controller")
        answered: Future[Any] = Future()
        ask(self._controller, answered.set_result)
        results = answered.result(DECISION_TIMEOUT_S)
        return [[each.name, int(each.error), each.message] for each in results]

    def _do_apply_retention(self) -> None:
        """On the thread that does so anyway; on return what is old is out of the logs."""
        applied: Future[None] = Future()

        def apply() -> Iterator[None]:
            yield from self._log_tasks.retention.sweep()
            yield from self._logs.checkpoint()
            applied.set_result(None)

        self._scheduler.schedule("apply-retention", apply, None)
        applied.result(DECISION_TIMEOUT_S)

    def _do_compact(self) -> None:
        """On return the last record of each key is there, and what had to go is out of the logs."""
        self._log_tasks.cleaner.clean_all()

    def _do_hits(self, *, number: int) -> int:
        return self._faults.hits(number)

    def _do_trace(self, *, on: bool) -> None:
        self._tracing = on
        self._cool_and_heat()

    def _do_requests(self, *, api_key: int | None, last: int | None = None) -> list[Any]:
        seen = self._trace.requests(api_key)
        return [list(each) for each in (seen if last is None else seen[-last:])]

    def _do_advance(self, *, ms: float) -> None:
        self._shifted.advance(ms)
        self._groups.table.set_clock_shift_ms(self._shifted.shift_ms)
        self._held_markers().shift_clock(self._shifted.shift_ms)

    def _do_now_ms(self) -> int:
        return self._shifted.wall_ms()

    def _do_bound(self) -> dict[str, list[tuple[str, int]]]:
        """Where it listens, by listener; nowhere yet, at the beginning of a start."""
        return self._bound

    def _do_live_objects(self) -> dict[str, int]:
        return self.live_objects()

    def _do_hang(self, *, path_part: str, operations: list[str]) -> None:
        self._files.hang(path_part, operations)

    def _do_hung(self) -> int:
        return self._files.hung()

    def _do_let_files_go(self) -> int:
        return self._files.let_go()

    def _held_markers(self) -> HeldMarkers:
        transactions = self._transactions
        if not isinstance(transactions, HeldMarkers):
            raise InvariantError("the broker under test holds markers")
        return transactions

    def _do_hold_markers(self) -> None:
        self._held_markers().hold()

    def _do_held_markers(self) -> int:
        return self._held_markers().held

    def _do_let_markers_go(self) -> int:
        return self._held_markers().let_go()

    def _do_drop_connections(self) -> int:
        """Ends every connection to the broker's listeners; how many there were."""
        ports = {port for bound in self._bound.values() for _, port in bound}
        count = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                count += _end_connection(int(name), ports)
            except OSError:
                continue  # closed meanwhile, no socket, or not connected
        return count


def _end_connection(descriptor: int, ports: set[int]) -> bool:
    # A copy of the descriptor: shutting it down ends the connection; the network thread sees it.
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        if peer.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if peer.getsockname()[1] not in ports:
            return False
        peer.getpeername()
        peer.shutdown(socket.SHUT_RDWR)
    return True


def _is_served(request: WrappedRequest) -> bool:
    key = ApiKey.for_key(request.api_key)
    return key is not None and key in SERVED and request.api_version in SERVED[key]


def _fault_text(fault: Fault | None) -> str:
    if fault is None:
        return ""
    if fault.drop:
        return "drop"
    if fault.lost:
        return "answer lost"
    if fault.error is not None:
        return f"error {fault.error.name}"
    return "throttle" if fault.throttle_ms else "delay"


def _not_set(request: WrappedRequest) -> None:
    raise RuntimeError("the broker has not started")
