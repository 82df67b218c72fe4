"""The memory of requests that are large once they are read: a bound over all handlers.

A request of 100 MB, which `socket.request.max.bytes` allows, may take 80 times as much when it has
been read: each row of the registry has the factor of its API. So a handler reads a large request
when the requests that other handlers have read leave room for it, and holds the room until its
handler returns; in the order in which they come. One that takes more than all of the room has it
alone. Small requests hold nothing, and wait for none.

Any handler thread. One that holds room waits for no more: a request that was forwarded is within an
envelope, whose factor has both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.bytes_budget import BytesBudget
from kbroker.handlers.envelope import Forwarded

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest

DECODED: Final = BytesBudget(limits.DECODED_BYTES_MAX)
_NO_ROOM: Final = nullcontext()


def room_for(request: ColdRequest, factor: int) -> AbstractContextManager[object]:
    """`factor`: the bytes in memory for each byte of the body, at most."""
    wanted_bytes = factor * len(request.body)
    if wanted_bytes <= limits.DECODED_SMALL_BYTES_MAX or isinstance(request, Forwarded):
        return _NO_ROOM
    return DECODED.held(wanted_bytes)
