from enum import IntEnum
from typing import Self

from typing_extensions import disjoint_base

from kbroker.errors import InvariantError

class State(IntEnum):
    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4
    REQCACHED_AND_RESPONSE_PENDING = 5
    REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING = 6
    THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING = 7
    THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING = 8
    HANDSHAKING = 9
    AUTHENTICATING = 10
    AUTHENTICATING_AND_RESPONSE_PENDING = 11

class Event(IntEnum):
    FRAME_COMPLETE = 0
    REQUEST_RECEIVED = 1
    REQUEST_LOCAL_PROCESSED = 2
    RESPONSE_SENT = 3
    RESPONSE_SENT_LAST = 4
    THROTTLE_STARTED = 5
    THROTTLE_ENDED = 6
    UNMUTE = 7
    HANDSHAKE_COMPLETE = 8
    AUTHENTICATION_COMPLETE = 9

class Status(IntEnum):
    OK = 0
    FULL = -1
    BAD_ID = -2
    ALREADY_FILLED = -3
    EMPTY = -4
    NOT_READY = -5
    NOT_EMPTY = -6
    NO_MEMORY = -7
    BAD_ARGUMENT = -8

# The rows (state, event, next state); PIPELINED is what that machine adds to STOCK.
STOCK: tuple[tuple[int, int, int], ...]
PIPELINED: tuple[tuple[int, int, int], ...]

class IllegalTransition(InvariantError):
    state: State
    event: Event
    connection_id: str
    def __init__(self, state: State, event: Event, connection_id: str = "") -> None: ...

def next_state(pipelined: bool, state: int, event: int) -> int: ...
def is_readable(state: int) -> bool: ...

@disjoint_base
class ChannelStateMachine:
    def __new__(
        cls, pipelined: bool, connection_id: str = "", state: State = State.NOT_MUTED
    ) -> Self: ...
    @property
    def connection_id(self) -> str: ...
    @property
    def pipelined(self) -> bool: ...
    @property
    def state(self) -> State: ...
    @property
    def readable(self) -> bool: ...
    @property
    def cached(self) -> bool: ...
    def fire(self, event: Event) -> State: ...
    def transitions(self) -> dict[tuple[State, Event], State]: ...

@disjoint_base
class ResponseSlots:
    def __new__(cls, count_max: int, bytes_max: int) -> Self: ...
    def push(self, request_id: int, bytes: int, response: object | None = None) -> Status: ...
    def fill(self, request_id: int, response: object) -> Status: ...
    def pop(self) -> tuple[int, object, int] | Status: ...
    def discard(self) -> tuple[int, object | None, int] | Status: ...
    def release(self) -> Status: ...
    @property
    def head_ready(self) -> bool: ...
    @property
    def room(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def __len__(self) -> int: ...
