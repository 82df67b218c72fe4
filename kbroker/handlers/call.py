"""One request that was read, and its one answer.

Place in the flow: `registry.dispatch` reads a request by its table (`protocol/messages`) into a
`Call` and gives it to the handler, which answers with a response of the same table: at once, or
later from another thread. An exception in the handler becomes the answer that says its code for all
that the request names (`messages/failures.py`).

Any thread; `Reply` sees to one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kbroker.errors import ErrorCode
from kbroker.handlers.envelope import Forwarded
from kbroker.handlers.reply import Reply, answer_exception, short_message
from kbroker.protocol.messages.failures import failed
from kbroker.protocol.messages.table import Message, Record
from kbroker.security.session import Session, session_of

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest
    from kbroker.protocol._messages import Encoded, Plan

Q = TypeVar("Q", bound=Message)


class Table(Protocol):
    """The module of an API's messages."""

    @property
    def Request(self) -> type[Message]: ...  # the name of a class

    @property
    def Response(self) -> type[Message]: ...


def session_for(request: ColdRequest) -> Session:
    """The session of the client that sent it. Call this before the request is answered."""
    if isinstance(request, Forwarded):
        return request.session
    return session_of(request.principal, request.client_id, request.listener, request.peer_host)


# The response that says a code wherever it can, where the table alone does not say how.
Shape = Callable[["Call[Any]", ErrorCode, str | None], Message]


class Call(Reply, Generic[Q]):
    """A request as its handler sees it."""

    # Ten thousand members may wait, each with one: what can be looked up has no slot.
    __slots__ = ("_shape", "_table", "message")

    message: Q

    def __init__(self, request: ColdRequest, table: Table, shape: Shape | None = None) -> None:
        """ProtocolError: the body is no request of this version."""
        super().__init__(request)
        message: Any = table.Request.decode(request.body, request.api_version)
        self.message = message
        self._table = table
        self._shape = shape

    @property
    def version(self) -> int:
        return self.request.api_version

    @property
    def _plan(self) -> Plan:
        return self._table.Response.plan_of(self.request.api_version)

    @property
    def session(self) -> Session:
        """Of the client. Read it before the answer: the connection may be gone afterwards."""
        return session_for(self.request)

    def encoded(self, record: Record) -> Encoded:
        """A part of the response, for a response that has it more than once."""
        flexible = self.version >= self._table.Response.flexible_since
        return record.encoded(self.version, flexible=flexible)

    def throttled(self, throttle_ms: int) -> int:
        """The time for its answer, which is to come: its client is not read for so long after it,
        unless another broker has forwarded it, and does that."""
        if throttle_ms > 0:
            self.request.throttle(throttle_ms)
        return throttle_ms

    def answer(self, response: Message) -> bool:
        """Send the response; False if there has been one."""
        if not self._claim():
            return False
        try:
            body = self._plan.encode(response)
        except Exception as error:
            answer_exception(self.request, self._failed, error, self._respond)
            return True
        self._respond(body)
        return True

    def answer_made(self, make: Callable[[], Message]) -> bool:
        """Send the response that `make` returns; what it raises is the answer instead."""
        return self.send(lambda: self._plan.encode(make()))

    def _failed(self, request: ColdRequest, code: ErrorCode, message: str) -> bytes:
        words = short_message(message or None)
        if self._shape is not None:
            return self._plan.encode(self._shape(self, code, words))
        return self._plan.encode(failed(self._table.Response, self.message, code, words))
