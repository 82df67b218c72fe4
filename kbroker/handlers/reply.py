"""An answer that comes later, from whichever thread is first, and exactly once.

Place in the flow: a handler that must wait for the controller makes a `Reply`, gives its methods as
callbacks to the controller and to the timer, and returns. The first of them to come sends the
answer; the others find it gone. The handler's own body is `with reply:`, so that an exception there
cannot become a second answer. What a callback does wrong ends as it would in the handler itself:
an error body if one can be made, else the connection is closed, with one line in the log.

One lock for all replies, a leaf, held for a flag only: ten thousand members may wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.limits import CUT_OFF_LINE_PERIOD_MS
from kbroker.log_lines import LogLines
from kbroker.outside_text import printable
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest

logger: Final = logging.getLogger("kbroker.request")
# A client can provoke such errors at will, so each cause is logged once a second.
lines: Final = LogLines(logger)
# The reason why a client is cut off is logged at WARN, for each client once a minute.
cut_off_lines: Final = LogLines(logger, period_ms=CUT_OFF_LINE_PERIOD_MS)
# Requests that are answered with UNKNOWN_SERVER_ERROR because something of ours raised.
failures: Final = Failures("requests")

# Makes the answer that says this code everywhere the request could have had an answer.
Failure = Callable[["ColdRequest", ErrorCode, str], bytes]


# A message may quote a name as long as a request, and a text of 32,767 bytes is all there is.
_MESSAGE_CHARS_MAX: Final = 1_000


def short_message(message: str | None) -> str | None:
    """A message as an answer carries it: its length is bounded."""
    if message is None or len(message) <= _MESSAGE_CHARS_MAX:
        return message
    return f"{message[:_MESSAGE_CHARS_MAX]}..."


_claims: Final = threading.Lock()


class Reply:
    """The one answer of one request."""

    __slots__ = ("_answered", "request", "watch")

    def __init__(self, request: ColdRequest) -> None:
        self.request = request
        self.watch: Callable[[bytes], None] | None = None  # is called with the body of the answer
        self._answered = False

    def _failed(self, request: ColdRequest, code: ErrorCode, message: str) -> bytes:
        """The body that has this error for everything that was asked."""
        raise NotImplementedError

    def _respond(self, body: bytes) -> None:
        if self.watch is not None:
            try:
                self.watch(body)
            except Exception as error:  # the client has its answer all the same
                failures.note("an audit record", error)
        self.request.respond(body)

    def _claim(self) -> bool:
        with _claims:
            first, self._answered = not self._answered, True
        return first

    def __enter__(self) -> Self:
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
            answer_exception(self.request, self._failed, error, self._respond)
        else:
            failures.counted()
            logger.error("%s raised after its answer: %r", api_name(self.request), error)
        return True

    def send(self, make_body: Callable[[], bytes]) -> bool:
        """Answer with the body that `make_body` returns; False if it was answered already."""
        if not self._claim():
            return False
        try:
            body = make_body()
        except Exception as error:
            answer_exception(self.request, self._failed, error, self._respond)
            return True
        self._respond(body)
        return True

    def fail(self, code: ErrorCode, message: str = "") -> bool:
        """Answer with this error for everything that was asked."""
        return self.send(lambda: self._failed(self.request, code, message))


def answer_exception(
    request: ColdRequest,
    failure: Failure | None,
    error: Exception,
    respond: Callable[[bytes], None] | None = None,
) -> None:
    """The end of a request whose handling raised: an error body or a closed connection.

    `respond` sends the body in place of the request itself.
    """
    name = api_name(request)
    if isinstance(error, ProtocolError):
        close(request, f"malformed {name}: {error}", cause="malformed")
        return
    if isinstance(error, KafkaError):
        # Without words of its own an error's message is the code's name, which the client has.
        code, message = error.code, error.message if error.message != error.code.name else ""
    else:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        failures.counted()
        lines.write(
            logging.ERROR,
            f"failed {request.api_key} {type(error).__name__}",
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
            (respond or request.respond)(failure(request, code, message))
    except Exception as second:
        close(request, f"{name} failed and its error could not be sent: {type(second).__name__}")


def close(request: ColdRequest, reason: str, cause: str = "unanswerable") -> None:
    """Close the connection of a request that has no answer; never raises."""
    lines.write(logging.INFO, cause, "closing %s: %s", request.connection_id, reason)
    _close(request, reason)


def _close(request: ColdRequest, reason: str) -> None:
    try:
        request.close_connection(reason)
    except Exception as error:
        logger.error("closing %s failed: %r", request.connection_id, error)


def close_not_served(request: ColdRequest) -> None:
    """Close the connection of a request whose API, or version of it, is not served here."""
    key = ApiKey.for_key(request.api_key)
    served = None if key is None else SERVED.get(key)
    versions = "" if served is None else f"; served are {served.min} to {served.max}"
    reason = f"{api_name(request)} is not served{versions}"
    client_id = printable(request.client_id or "")
    cut_off_lines.write(
        logging.WARNING,
        f"{request.peer_host} {client_id}",
        "closing %s of client '%s': %s",
        request.connection_id,
        client_id,
        reason,
    )
    _close(request, reason)


def api_name(request: ColdRequest) -> str:
    """The API and version, as a log line names them."""
    key = ApiKey.for_key(request.api_key)
    label = f"API key {request.api_key}" if key is None else key.label
    return f"{label} v{request.api_version}"
