"""An answer that comes later, from whichever thread is first, and exactly once.

Place in the flow: a handler that must wait for the controller makes a `Reply`, gives its methods as
callbacks to the controller and to the timer, and returns. The first of them to come sends the
answer; the others find it gone. The handler's own body is `with reply:`, so that an exception there
cannot become a second answer. What a callback does wrong ends as it would in the handler itself:
an error body if one can be made, else the connection is closed, with one line in the log.

One lock, a leaf, held for a flag only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import Request

logger: Final = logging.getLogger("kbroker.request")

# Makes the answer that says this code everywhere the request could have had an answer.
Failure = Callable[["Request", ErrorCode, str], bytes]


class Reply:
    """The one answer of one request."""

    __slots__ = ("_answered", "_failure", "_lock", "_request")

    def __init__(self, request: Request, failure: Failure) -> None:
        self._request = request
        self._failure = failure
        self._lock = threading.Lock()
        self._answered = False

    def _claim(self) -> bool:
        with self._lock:
            first, self._answered = not self._answered, True
        return first

    def __enter__(self) -> Reply:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """An exception in the body becomes the answer, unless there has been one."""
        if not isinstance(error, Exception):
            return False
        if self._claim():
            answer_exception(self._request, self._failure, error)
        else:
            logger.error("%s raised after its answer: %r", api_name(self._request), error)
        return True

    def send(self, make_body: Callable[[], bytes]) -> bool:
        """Answer with what `make_body` returns; False if somebody else has answered."""
        if not self._claim():
            return False
        try:
            body = make_body()
        except Exception as error:
            answer_exception(self._request, self._failure, error)
            return True
        self._request.respond(body)
        return True

    def fail(self, code: ErrorCode, message: str = "") -> bool:
        """Answer with this error for everything that was asked."""
        return self.send(lambda: self._failure(self._request, code, message))


def answer_exception(request: Request, failure: Failure | None, error: Exception) -> None:
    """The end of a request whose handling raised: an error body or a closed connection."""
    name = api_name(request)
    if isinstance(error, ProtocolError):
        close(request, f"malformed {name}: {error}")
        return
    if isinstance(error, KafkaError):
        # Without words of its own an error's message is the code's name, which the client has.
        code, message = error.code, error.message if error.message != error.code.name else ""
    else:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        logger.error(
            "%s from %s failed: %s: %s",
            name,
            request.connection_id,
            type(error).__name__,
            " ".join(str(error).split()),
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        )
    try:
        if failure is None:
            close(request, f"{name} failed")
        else:
            request.respond(failure(request, code, message))
    except Exception as second:
        close(request, f"{name} failed and its error could not be sent: {type(second).__name__}")


def close(request: Request, reason: str) -> None:
    """Close the connection of a request that has no answer; never raises."""
    logger.info("closing %s: %s", request.connection_id, reason)
    try:
        request.close_connection(reason)
    except Exception as error:
        logger.error("closing %s failed: %r", request.connection_id, error)


def api_name(request: Request) -> str:
    """The API and version, as a log line names them."""
    key = ApiKey.for_key(request.api_key)
    label = f"API key {request.api_key}" if key is None else key.label
    return f"{label} v{request.api_version}"
