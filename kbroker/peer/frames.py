"""Request and response frames of our own clients: sizes and headers, around encoded bodies.

`Link` (blocking) and `Connection` (on an event loop) share it. Nothing here does I/O.
"""

from __future__ import annotations

import struct
from typing import Final

from kbroker.protocol.versions import request_header_version, response_header_version
from kbroker.protocol.wire import Reader, encode_string
from kbroker.types import ApiKey

CORRELATION_ID_MAX: Final = 2**31 - 1
# A response without a body: its correlation id.
FRAME_BYTES_MIN: Final = 4
# One fetch response: fetch.max.bytes is 50 MiB by default, and a first batch may exceed it.
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
_SIZE_AND_HEADER: Final = struct.Struct(">ihhi")


def request_frame(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str, body: bytes
) -> bytes:
    tail = encode_string(client_id, flexible=False)
    if request_header_version(api_key, version) >= 2:
        tail += b"\x00"  # no tagged fields
    size = _SIZE_AND_HEADER.size - 4 + len(tail) + len(body)
    return _SIZE_AND_HEADER.pack(size, api_key, version, correlation_id) + tail + body


def correlation_id_of(frame: bytes) -> int:
    """Of a response frame without its size, of FRAME_BYTES_MIN at least."""
    return int.from_bytes(frame[:4], "big", signed=True)


def body_of(frame: bytes, api_key: ApiKey, version: int) -> Reader:
    """A reader after the header; ProtocolError where that is malformed."""
    reader = Reader(frame, flexible=request_header_version(api_key, version) >= 2)
    reader.int32()  # the correlation id
    if response_header_version(api_key, version) >= 1:
        reader.tags()
    return reader
