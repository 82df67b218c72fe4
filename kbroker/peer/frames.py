"""Request and response frames of our own clients: sizes and headers, around encoded bodies.

`Link` (blocking) and `Connection` (on an event loop) share it. Nothing here does I/O.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from kbroker.protocol.versions import request_header_version, response_header_version
from kbroker.protocol.wire import Reader, encode_string
from kbroker.types import ApiKey

CORRELATION_ID_MAX: Final = 2**31 - 1
# A response without a body: its correlation id.
FRAME_BYTES_MIN: Final = 4
# One fetch response: fetch.max.bytes is 50 MiB by default, and a first batch may exceed it.
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_NUMBER: Final = struct.Struct(">i")
_CORRELATION_ID_BYTES: Final = 4
_SHAPES_MAX: Final = 256


class Shape(NamedTuple):
    """What requests of one version of an API, from one client, have around their bodies, and their
    responses."""

    begin: bytes  # after the size
    client: bytes  # after the correlation id
    flexible: bool
    answer_has_tags: bool  # in its header

    def request_frame(self, correlation_id: int, body: bytes) -> bytes:
        begin, client = self.begin, self.client
        size = len(begin) + _CORRELATION_ID_BYTES + len(client) + len(body)
        return b"".join((_NUMBER.pack(size), begin, _NUMBER.pack(correlation_id), client, body))


@lru_cache(maxsize=_SHAPES_MAX)
def shape_of(api_key: int, version: int, client_id: str) -> Shape:
    flexible = request_header_version(api_key, version) >= 2
    client = encode_string(client_id, flexible=False) + (b"\x00" if flexible else b"")
    answer_has_tags = response_header_version(api_key, version) >= 1
    return Shape(_KEY_AND_VERSION.pack(api_key, version), client, flexible, answer_has_tags)


def request_frame(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str, body: bytes
) -> bytes:
    return shape_of(api_key, version, client_id).request_frame(correlation_id, body)


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
