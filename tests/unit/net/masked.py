"""A client of the transport that masks every byte: see kbroker/testing/_masked_transport.pyx."""

from __future__ import annotations

import struct
from typing import Any, Final

from kbroker.testing._masked_transport import ACK, UPDATE, UPDATE_BYTES
from tests.unit.net.harness import Client

MASK: Final = 0x5A
RECORD_BYTES: Final = 900


def masked(data: bytes, record_bytes: int = RECORD_BYTES) -> bytes:
    """These bytes as records."""
    parts = (data[at : at + record_bytes] for at in range(0, len(data), record_bytes))
    return b"".join(_length(len(part)) + _mask(part) for part in parts)


def _length(count: int) -> bytes:
    return struct.pack(">H", count)


def _mask(data: bytes) -> bytes:
    return data.translate(bytes(byte ^ MASK for byte in range(256)))


class MaskedClient(Client):
    """`send` and `read` go through the transport; its socket is the client's as ever."""

    def __init__(
        self, port: int, *, acks: bool = False, handshake: bool = True, **options: Any
    ) -> None:
        super().__init__(port, **options)
        self.ended_well = False
        self._acks = acks
        self._plain = bytearray()
        self._zeros = 0
        if handshake:
            self.shake()

    def shake(self) -> None:
        self.socket.sendall(b"HELO")
        assert super().read(4) == b"OLEH"
        self.socket.sendall(bytes([MASK]))

    def send(self, data: bytes) -> None:
        self.socket.sendall(masked(data))

    def update(self) -> None:
        """The server is to send UPDATE_BYTES before it receives more."""
        self.socket.sendall(_length(UPDATE))
        self._zeros += UPDATE_BYTES

    def acknowledge(self) -> None:
        self.socket.sendall(_length(ACK))

    def read(self, count: int) -> bytes:
        while len(self._plain) < count and not self.ended_well:
            prefix = super().read(2)
            while self._zeros and prefix == b"\0\0":
                self._zeros -= 2
                prefix = super().read(2)
            if len(prefix) < 2:
                break
            (length,) = struct.unpack(">H", prefix)
            self.ended_well = length == 0
            self._plain += _mask(super().read(length))
            if self._acks:
                self.acknowledge()
        taken = bytes(self._plain[:count])
        del self._plain[:count]
        return taken

    def ended(self) -> bool:
        try:
            return self.read(1) == b""
        except ConnectionResetError:
            return True
