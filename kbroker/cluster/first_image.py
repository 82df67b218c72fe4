"""Requests to a broker of a cluster wait until it has the cluster's metadata.

Place in the flow: a broker that starts has to listen before it knows a topic, since the controller
sends it over the same listeners, and requests meanwhile would be answered out of an empty
cluster. So requests for Python are held (Metadata too, as long as C has no image), and done in
their order when the first image is there; then the broker says that it is ready. Other brokers and
ApiVersions are not held. Answers of C by itself say that the partition or the coordinator is not
here, and clients ask again.

`came` is called on the controller's thread, `hold` on request handlers', the rest on the main one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.handlers.forwarding import calls_itself_a_broker
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker._net import WrappedRequest
    from kbroker.failures import Failures

    Dispatch = Callable[[WrappedRequest], None]


# Between two looks whether the wait was given up.
LOOK_MS: Final = 100


class FirstImage:
    """See the head of this file."""

    def __init__(self, failures: Failures, inside: str) -> None:
        """`failures`: where what a held request raises is said and counted. `inside`: the listener
        that brokers have for each other."""
        self._inside = inside
        self._failures = failures
        self._lock = threading.Lock()
        self._held: list[Callable[[], None]] = []
        self._came = threading.Event()
        self._in_vain = False
        self.given_up = False  # set by a signal handler, which takes no lock

    @property
    def has_come(self) -> bool:
        return self._came.is_set()

    def held(self, dispatch: Dispatch) -> Dispatch:
        """This dispatch, after the first image."""

        def dispatch_then(request: WrappedRequest) -> None:
            if self._came.is_set() or self._may_pass(request) or not self._hold(request, dispatch):
                dispatch(request)

        return dispatch_then

    def _may_pass(self, request: WrappedRequest) -> bool:
        return request.api_key == ApiKey.API_VERSIONS or calls_itself_a_broker(
            request, self._inside
        )

    def _hold(self, request: WrappedRequest, dispatch: Dispatch) -> bool:
        with self._lock:
            if self._came.is_set():
                return False
            if not self._in_vain:  # else it is dropped, which closes its connection
                self._held.append(lambda: dispatch(request))
            return True

    def came(self) -> None:
        """The image is published; only the first time matters."""
        with self._lock:
            self._came.set()
            held, self._held = self._held, []
        for go_on in held:
            try:
                go_on()
            except Exception as error:
                self._failures.note("a request that waited for the first image", error)

    def wait(self, timeout_ms: int) -> bool:
        """False: it has not come, or no request is to wait any more (`given_up`): those that wait
        lose their connection."""
        while timeout_ms > 0 and not self.given_up:
            if self._came.wait(min(timeout_ms, LOOK_MS) / 1000):
                return True
            timeout_ms -= LOOK_MS
        if self._came.is_set():
            return True
        self.let_go()
        return False

    def let_go(self) -> None:
        """Requests that wait for it wait in vain, and so do later ones."""
        with self._lock:
            self._in_vain = True
            self._held.clear()
