"""A client of TLS 1.2 that sends any record, also one that no library sends.

The handshake is Python's ssl over memory; then the keys are made of the secret that ssl logs, and
records are written here. Source: RFC 5246, sections 5, 6.3 and 6.2.3.3; RFC 5288.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import tempfile
from contextlib import suppress
from typing import Final

from tests.support import requirements
from tests.support.certificates import Authority, client_context

ALERT: Final = 21
HANDSHAKE: Final = 22
DATA: Final = 23
HELLO: Final = b"\x01\x00\x00\x00"  # the head of a ClientHello without a body
_SUITE: Final = "ECDHE-ECDSA-AES128-GCM-SHA256"
_RANDOM: Final = slice(11, 43)  # of a ServerHello, from the start of its record


class RawTls:
    """Connected, its handshake complete; `socket` is a blocking one."""

    def __init__(self, port: int, authority: Authority, *, timeout_s: float = 20) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            requirements.skip_missing("cryptography", "the extra [test] brings it")
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(timeout_s)
        context = client_context(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_SUITE)
        context.options |= ssl.OP_NO_TICKET
        with tempfile.NamedTemporaryFile("r") as log:
            context.keylog_filename = log.name
            server_random = self._shake_hands(context)
            label, client_random, master = log.read().splitlines()[-1].split()
        assert label == "CLIENT_RANDOM"
        seed = b"key expansion" + server_random + bytes.fromhex(client_random)
        block = _expanded(bytes.fromhex(master), seed, 2 * 16 + 2 * 4)
        self._cipher = AESGCM(block[:16])
        self._salt = block[32:36]
        self._sequence = 1  # Finished had 0

    def _shake_hands(self, context: ssl.SSLContext) -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        received = b""
        while True:
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                self.socket.sendall(outgoing.read())
                return received[_RANDOM]
            self.socket.sendall(outgoing.read())
            more = self.socket.recv(1 << 16)
            assert more, "the peer ended the handshake"
            received += more
            incoming.write(more)

    def record(self, kind: int, content: bytes) -> bytes:
        """The next one, as it goes over the wire."""
        number = self._sequence.to_bytes(8, "big")
        self._sequence += 1
        head = bytes([kind]) + b"\x03\x03"
        associated = number + head + len(content).to_bytes(2, "big")
        body = number + self._cipher.encrypt(self._salt + number, content, associated)
        return head + len(body).to_bytes(2, "big") + body

    def send(self, kind: int, content: bytes) -> None:
        self.socket.sendall(self.record(kind, content))

    def ended(self) -> bool:
        """Waits for the end of the connection, whatever comes before it."""
        with suppress(ConnectionResetError):
            while self.socket.recv(1 << 16):
                pass
        return True

    def close(self) -> None:
        self.socket.close()


def _expanded(secret: bytes, seed: bytes, length: int) -> bytes:
    made, block = b"", seed
    while len(made) < length:
        block = hmac.digest(secret, block, hashlib.sha256)
        made += hmac.digest(secret, block + seed, hashlib.sha256)
    return made[:length]
