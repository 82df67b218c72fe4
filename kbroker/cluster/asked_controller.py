"""What this broker has asked of the controller, until it is answered or another one is in office.

Place in the flow: `BrokerLinks.forward` has a request noted here, and its answer goes through here.
A controller that hangs answers nothing, and its connection is open: without this the request would
wait for its time-out, long after the next controller was elected. So when an image is published
that names another controller, what was asked of the last one is given up: what became of it is not
known, and who asked may ask the next one. An answer that comes later is dropped.

Any thread. Locks: `_lock` only, a leaf; callbacks run without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import NO_CONTROLLER

Done = Callable[[bytes | KafkaError], None]


class AskedController:
    """See the head of this file."""

    def __init__(self, controller_id: Callable[[], int], failures: Failures | None = None) -> None:
        """`controller_id` is who the controller is, in the image that is published. `failures`
        counts callbacks that raise."""
        self._failures: Final = failures or Failures("requests to the controller")
        self._controller_id = controller_id
        self._lock = threading.Lock()
        self._asked: dict[object, tuple[int, Done]] = {}

    def ask(self, node_id: int, done: Done) -> Done:
        """What takes the answer of this controller; `done` gets that, or that it is given up."""
        request = object()
        with self._lock:
            self._asked[request] = node_id, done

        def answered(answer: bytes | KafkaError) -> None:
            with self._lock:
                known = self._asked.pop(request, None)
            if known is not None:
                done(answer)

        return answered

    def followed(self) -> None:
        """There is another image."""
        now = self._controller_id()
        if now == NO_CONTROLLER or not self._asked:
            return
        with self._lock:
            old = [request for request, (node_id, _) in self._asked.items() if node_id != now]
            given_up = [self._asked.pop(request) for request in old]
        for node_id, done in given_up:
            message = f"broker {node_id} did not answer, and broker {now} is the controller now"
            try:
                done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
            except Exception as error:  # the others are given up all the same
                self._failures.note("giving up a request to the last controller", error)
