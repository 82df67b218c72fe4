"""ListPartitionReassignments (46): the partitions that are on their way to other brokers.

There are none as long as a cluster is one broker. Names are not looked at: what does not move is
left out, as Apache Kafka does, whether it is there or not.

Any handler thread; holds no lock; does not import the schema library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.reply import told
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import Request, Services


def decode_list(request: Request) -> list[tuple[str, list[int]]] | None:
    """The partitions that are asked for; None: all."""
    reader = Reader(request.body, flexible=True)
    reader.int32()  # how long the controller may take
    count = reader.nullable_array()
    asked = []
    for _ in range(count or 0):
        name = reader.string()
        asked.append((name, [reader.int32() for _ in range(reader.array())]))
        reader.tags()
    reader.tags()
    return None if count is None else asked


def handle_list(services: Services, request: Request) -> None:
    decode_list(request)
    request.respond(_encode_list(ErrorCode.NONE, None))


def _encode_list(code: ErrorCode, message: str | None) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    out.array(0)
    out.tags()
    return out.getvalue()


def list_failure(request: Request, code: ErrorCode, message: str) -> bytes:
    return _encode_list(code, message or None)
