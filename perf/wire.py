"""Kafka's wire types for requests that perf writes by hand, and frames around them.

A deliberate second implementation, small and slow: the generator must not lean on the code of the
broker that it measures. Writer appends, Reader checks what is left before each read.
"""

from __future__ import annotations

import socket
import struct

NEVER = 99
FLEXIBLE_SINCE = {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4,
    18: 3, 19: 5, 20: 4, 22: 2, 24: 3, 26: 3, 32: 4, 36: 2, 43: 2, 65: 0, 66: 0,
    68: 0, 76: 1, 78: 1, 79: 1, 17: NEVER,
}  # fmt: skip
CLIENT_ID = b"kbroker-perf"


class WireError(Exception):
    """Bytes that do not hold what their version says, or that end too soon."""


def read_exactly(connection: socket.socket, n: int) -> bytes:
    """The next n bytes, waiting for all of them. WireError at the end of the connection."""
    parts = bytearray()
    while len(parts) < n:
        part = connection.recv(n - len(parts))
        if not part:
            raise WireError("the other side closed the connection")
        parts += part
    return bytes(parts)


class Writer:
    """Appends wire types. `flexible` chooses compact lengths and tag buffers."""

    def __init__(self, flexible: bool = False) -> None:
        self.data = bytearray()
        self.flexible = flexible

    def put(self, layout: str, *values: int) -> Writer:
        self.data += struct.pack(">" + layout, *values)
        return self

    def raw(self, data: bytes) -> Writer:
        self.data += data
        return self

    def uvarint(self, value: int) -> Writer:
        while value >= 128:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)
        return self

    def count(self, n: int) -> Writer:
        return self.uvarint(n + 1) if self.flexible else self.put("i", n)

    def string(self, text: str | None) -> Writer:
        raw = None if text is None else text.encode()
        n = -1 if raw is None else len(raw)
        if self.flexible:
            self.uvarint(n + 1)
        else:
            self.put("h", n)
        return self.raw(raw or b"")

    def bytes(self, data: bytes) -> Writer:
        self.count(len(data))
        return self.raw(data)

    def tags(self) -> Writer:
        return self.uvarint(0) if self.flexible else self


class Reader:
    """Takes wire types off a buffer, never past its end."""

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    def take(self, n: int) -> bytes:
        if n < 0 or n > len(self.data) - self.at:
            raise WireError(f"{n} bytes wanted, {len(self.data) - self.at} left")
        self.at += n
        return self.data[self.at - n : self.at]

    def get(self, layout: str) -> int:
        value: int = struct.unpack(">" + layout, self.take(struct.calcsize(">" + layout)))[0]
        return value

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise WireError("a varint of more than five bytes")

    def count(self) -> int:
        n = self.uvarint() - 1 if self.flexible else self.get("i")
        if n > len(self.data) - self.at:
            raise WireError(f"an array of {n} in {len(self.data) - self.at} bytes")
        return max(0, n)

    def string(self) -> str:
        n = self.uvarint() - 1 if self.flexible else self.get("h")
        return self.take(n).decode() if n > 0 else ""

    def tags(self) -> None:
        if self.flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())


def request_header(api_key: int, version: int, correlation_id: int = 0) -> bytes:
    """A frame's beginning: the size (0 here), then the header of the version's own kind."""
    w = Writer().put("ihhi", 0, api_key, version, correlation_id)
    w.string(CLIENT_ID.decode())
    if version >= FLEXIBLE_SINCE[api_key]:
        w.uvarint(0)
    return bytes(w.data)


def frame(header: bytes, body: bytes) -> bytes:
    """Header and body with the size field filled in."""
    whole = bytearray(header + body)
    struct.pack_into(">i", whole, 0, len(whole) - 4)
    return bytes(whole)
