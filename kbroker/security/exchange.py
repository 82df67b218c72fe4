"""The SASL exchange of a connection that has not authenticated, as one table.

Place in the flow: `handlers/authentication.py` reads each frame, finds out which event it is, and
does what the table has for the state. TABLE has a cell for every state and event; the tests walk
all of them, and docs/security.md is drawn from it. As Apache Kafka's:

- ApiVersions is answered once, if at all, before SaslHandshake names the mechanism.
- After SaslHandshake v1 the tokens come in SaslAuthenticate; after v0 without any header.
- A failure is answered where the protocol has an answer, and never at once: the answer is held, so
  that passwords are not tried fast. The connection is not read meanwhile.

A connection's frames come one after the other, so its exchange is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from kbroker.errors import InvariantError
from kbroker.security.mechanism import Mechanism


class State(Enum):
    INITIAL = "nothing has come"
    VERSIONED = "ApiVersions is answered"
    REQUESTS = "the mechanism is named, and its tokens come in SaslAuthenticate"
    TOKENS = "the mechanism is named, and its tokens come without a header"
    OVER = "the client is known, or the connection ends"


class Event(Enum):
    API_VERSIONS = "ApiVersions"
    API_VERSIONS_REFUSED = "ApiVersions whose answer is an error: its client may ask again"
    HANDSHAKE_0 = "SaslHandshake v0 of a mechanism that the listener has"
    HANDSHAKE_1 = "SaslHandshake v1 of such a mechanism"
    HANDSHAKE_REFUSED = "SaslHandshake of another mechanism"
    TOKEN_ANSWERED = "a token that the mechanism answers"
    TOKEN_ACCEPTED = "a token after which the client is known"
    TOKEN_DENIED = "a token after which the client is not let in"
    OTHER_REQUEST = "a request of another API that is served"
    NO_REQUEST = "bytes that are no request of an API and version that are served"


class Do(Enum):
    ANSWER = "the answer is sent"
    OPEN = "the answer is sent, and the client's requests follow"
    REFUSE = "the answer, which says why, is held and sent, and the connection ends"
    END_LATE = "nothing is sent, and the connection ends as late as after a REFUSE"
    END = "the connection ends at once"
    NEVER = "it cannot happen"


class Cell(NamedTuple):
    do: Do
    to: State


_NEVER: Final = Cell(Do.NEVER, State.OVER)
_END: Final = Cell(Do.END, State.OVER)
_REFUSE: Final = Cell(Do.REFUSE, State.OVER)
_OPEN: Final = Cell(Do.OPEN, State.OVER)


def _answer(to: State) -> Cell:
    return Cell(Do.ANSWER, to)


_ROWS: Final = {
    # state: a cell for each event, in their order
    State.INITIAL: (
        _answer(State.VERSIONED), _answer(State.INITIAL),
        _answer(State.TOKENS), _answer(State.REQUESTS), _REFUSE,
        _NEVER, _NEVER, _NEVER,
        _END, _END,
    ),
    State.VERSIONED: (
        _END, _END,
        _answer(State.TOKENS), _answer(State.REQUESTS), _REFUSE,
        _NEVER, _NEVER, _NEVER,
        _END, _END,
    ),
    State.REQUESTS: (
        _REFUSE, _REFUSE,
        _REFUSE, _REFUSE, _REFUSE,
        _answer(State.REQUESTS), _OPEN, _REFUSE,
        _REFUSE, _END,
    ),
    State.TOKENS: (
        _NEVER, _NEVER,
        _NEVER, _NEVER, _NEVER,
        _answer(State.TOKENS), _OPEN, Cell(Do.END_LATE, State.OVER),
        _NEVER, _NEVER,
    ),
    State.OVER: (_NEVER,) * len(Event),
}  # fmt: skip

TABLE: Final[Mapping[tuple[State, Event], Cell]] = MappingProxyType(
    {
        (state, event): cell
        for state, row in _ROWS.items()
        for event, cell in zip(Event, row, strict=True)
    }
)


class Exchange:
    """Of one connection; `mechanism` is there once it is named, and `mechanism_name`."""

    __slots__ = ("answered_ms", "mechanism", "mechanism_name", "state")

    def __init__(self) -> None:
        self.answered_ms = 0  # the last frame, by the monotonic clock
        self.state = State.INITIAL
        self.mechanism: Mechanism | None = None
        self.mechanism_name = ""

    def name_mechanism(self, name: str, mechanism: Mechanism) -> None:
        self.mechanism_name, self.mechanism = name, mechanism

    def fire(self, event: Event) -> Do:
        """What is to be done; the exchange is in its next state then."""
        cell = TABLE[self.state, event]
        if cell.do is Do.NEVER:
            raise InvariantError(f"SASL exchange: {event.name} in {self.state.name}")
        self.state = cell.to
        return cell.do
