"""What a test wants to go wrong, and what the broker has been asked: two small books.

`Faults` holds the rules by API key; `take` gives the first that fits a request and counts it. A
rule with `times` is used up after so many requests. `Trace` keeps the last requests that passed
through Python, which is all of them while tracing is on.

Any thread; each book has a lock, a leaf.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker._net import WrappedRequest

# The requests of the test's own inspection: neither recorded nor made to fail.
INSPECTOR_CLIENT_ID: Final = "kbroker-testing"
TRACE_REQUESTS_MAX: Final = 100_000


@dataclass(slots=True)
class Fault:
    """A rule: wait, then end the connection, answer with an error, or serve the request; who is
    served may be throttled."""

    number: int
    api_key: int
    error: ErrorCode | None = None
    delay_ms: float = 0
    drop: bool = False
    throttle_ms: int = 0
    lost: bool = False  # it is served, and the connection ends instead of the answer
    times: int | None = None  # None: until it is removed
    client_id: str | None = None  # None: every client
    hits: int = 0

    def fits(self, api_key: int, client_id: str | None) -> bool:
        if self.api_key != api_key or (self.times is not None and self.hits >= self.times):
            return False
        return self.client_id is None or self.client_id == client_id

    @property
    def used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times


class Faults:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[int, Fault] = {}
        self._hits: dict[int, int] = {}
        self._number = 0

    def add(self, api_key: int, **fields: Any) -> int:
        """The number of the new rule."""
        with self._lock:
            self._number += 1
            self._faults[self._number] = Fault(self._number, api_key, **fields)
            return self._number

    def remove(self, number: int | None) -> None:
        """One rule, or all of them; what is not there is as good as removed."""
        with self._lock:
            for each in list(self._faults) if number is None else [number]:
                gone = self._faults.pop(each, None)
                if gone is not None:
                    self._hits[each] = gone.hits

    def take(self, api_key: int, client_id: str | None) -> Fault | None:
        with self._lock:
            for fault in self._faults.values():
                if fault.fits(api_key, client_id):
                    fault.hits += 1
                    return fault
        return None

    def hits(self, number: int) -> int:
        with self._lock:
            fault = self._faults.get(number)
            return fault.hits if fault is not None else self._hits.get(number, 0)

    def api_keys(self) -> set[int]:
        """The APIs that some rule still waits for."""
        with self._lock:
            return {fault.api_key for fault in self._faults.values() if not fault.used_up}


class Unanswered:
    """A request that is served, and whose client does not get the answer."""

    def __init__(self, request: WrappedRequest) -> None:
        self._request: Final = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def respond(self, body: bytes) -> None:
        self._request.close_connection("a test lets the answer be lost")


class Seen(NamedTuple):
    """A request as it came, and what was done to it: "", "error X", "delay", "drop", "throttle",
    "answer lost"."""

    at_s: float  # seconds since the trace began
    api_key: int
    api_version: int
    client_id: str | None
    correlation_id: int
    body_bytes: int
    fault: str

    @property
    def api(self) -> ApiKey | None:
        return ApiKey.for_key(self.api_key)

    def text(self) -> str:
        """One line."""
        name = self.api.label if self.api is not None else f"API {self.api_key}"
        line = f"{self.at_s:10.4f} s  {name} v{self.api_version}  {self.client_id or '-'}"
        line += f" #{self.correlation_id}  {self.body_bytes} bytes"
        return f"{line}  {self.fault}" if self.fault else line


class Trace:
    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._seen: deque[Seen] = deque(maxlen=TRACE_REQUESTS_MAX)

    def note(self, request: Any, fault: str) -> None:
        self._seen.append(
            Seen(
                round(time.monotonic() - self._began_s, 6),
                request.api_key,
                request.api_version,
                request.client_id,
                request.correlation_id,
                len(request.body),
                fault,
            )
        )

    def requests(self, api_key: int | None) -> list[Seen]:
        """The last requests of one API, or of all, oldest first."""
        return [seen for seen in self._seen.copy() if api_key in (None, seen.api_key)]
