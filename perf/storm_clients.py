"""Thousands of clients of one thread that connect at once, each with TLS 1.3 and SCRAM-SHA-256.

Each does what a Java client does: TLS, ApiVersions, SaslHandshake, two SaslAuthenticate, then a
Metadata request, one after the other; then it stays. A connection that ends before that is made
again after 50 ms, twice as long each time up to a second, a fifth more or less, as Java's
`reconnect.backoff.ms`. Source addresses are spread over 127.0.0.2 and those after it, since brokers
bound what comes from one. The salted password is computed once, as a client does that keeps it.

    storm = Storm(("127.0.0.1", 9093), context, count=10_000)
    took_s = storm.run(give_up_s=300)
    storm.close()
"""

from __future__ import annotations

import errno
import heapq
import itertools
import random
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator
from functools import cache
from typing import Final

from kbroker.security.client_login import ClientLogin
from kbroker.security.scram import ScramMechanism
from perf.wire import frame, request_header

USER: Final = "storm"
PASSWORD: Final = "a password of the storm"
MECHANISM: Final = "SCRAM-SHA-256"
ADDRESSES: Final = 200
BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE, _METADATA = 18, 17, 36, 3
_BYTES: Final = 64 << 10
_EVENTS: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
_NO_ERROR: Final = b"\0\0"


def keep_salted_passwords() -> None:
    """PBKDF2 once for each salt: 10,000 clients in one process are not to be its measure."""
    salted = cache(ScramMechanism.salted)
    ScramMechanism.salted = salted  # type: ignore[method-assign]


class Refused(Exception):
    """The broker does not let the client in: no reason to try again."""


Steps = Generator[bytes, bytes, None]


def login() -> Steps:
    """Yields each request, and is sent the body of its response."""
    yield frame(request_header(_API_VERSIONS, 0), b"")
    mechanism = struct.pack(">h", len(MECHANISM)) + MECHANISM.encode()
    answer = yield frame(request_header(_HANDSHAKE, 1), mechanism)
    if answer[:2] != _NO_ERROR:
        raise Refused("SaslHandshake")
    tokens = ClientLogin(MECHANISM, USER, PASSWORD).tokens()
    token = next(tokens)
    while True:
        answer = yield frame(
            request_header(_AUTHENTICATE, 1), struct.pack(">i", len(token)) + token
        )
        if answer[:2] != _NO_ERROR:
            raise Refused("SaslAuthenticate")
        (message_size,) = struct.unpack_from(">h", answer, 2)
        at = 4 + max(0, message_size)
        (size,) = struct.unpack_from(">i", answer, at)
        try:
            token = tokens.send(answer[at + 4 : at + 4 + size])
        except StopIteration:
            return


def connecting() -> Steps:
    yield from login()
    yield frame(request_header(_METADATA, 1), struct.pack(">i", 0))


class _Client:
    """One of them."""

    __slots__ = ("attempts", "handshaken", "received", "socket", "source", "steps", "tls")

    def __init__(self, number: int) -> None:
        self.source = f"127.0.0.{2 + number % ADDRESSES}"
        self.attempts = 0
        self.socket: socket.socket | None = None
        self.tls: ssl.SSLSocket | None = None
        self.steps: Steps | None = None
        self.handshaken = False
        self.received = b""

    def begin(self, address: tuple[str, int]) -> socket.socket:
        self.attempts += 1
        self.tls, self.steps, self.handshaken, self.received = None, None, False, b""
        made = self.socket = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind((self.source, 0))
        error = made.connect_ex(address)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, "connect")
        return made

    def go_on(self, context: ssl.SSLContext) -> bool:
        """Whether it is done. OSError: its connection has ended; Refused."""
        try:
            if self.tls is None:
                plain = self.socket
                if plain is None:
                    return False
                error = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "connect")
                self.tls = context.wrap_socket(
                    plain, server_hostname="127.0.0.1", do_handshake_on_connect=False
                )
                self.socket = self.tls
            if not self.handshaken:
                self.tls.do_handshake()
                self.handshaken = True
                self.steps = connecting()
                self._send(next(self.steps))
            return self._read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False

    def _send(self, request: bytes) -> None:
        if self.tls is not None and self.tls.send(request) != len(request):
            raise OSError(errno.EPIPE, "a request was not taken whole")

    def _read(self) -> bool:
        while self.tls is not None and self.steps is not None:
            data = self.tls.recv(_BYTES)
            if not data:
                raise OSError(errno.ECONNRESET, "the broker has ended the connection")
            self.received += data
            while len(self.received) >= 4:
                (size,) = struct.unpack_from(">i", self.received)
                if len(self.received) < 4 + size:
                    break
                body, self.received = self.received[8 : 4 + size], self.received[4 + size :]
                try:
                    self._send(self.steps.send(body))
                except StopIteration:
                    return True
        return False

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


class Storm:
    """`count` clients that begin at once. `say` gets a line a second."""

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        count: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._address = address
        self._context = context
        self._clients = [_Client(number) for number in range(count)]
        self._by_fd: dict[int, _Client] = {}
        self._poll = select.epoll()
        self._due: list[tuple[float, int, _Client]] = []
        self._order = itertools.count()  # of those that are due at the same time
        self._random = random.Random(1)
        self._say = say
        self.done_s: list[float] = []  # of each, since the beginning
        self.failures: dict[str, int] = {}

    @property
    def attempts(self) -> int:
        return sum(each.attempts for each in self._clients)

    def run(self, give_up_s: float) -> float:
        """Seconds until all are in. TimeoutError; Refused."""
        began = time.monotonic()
        for client in self._clients:
            heapq.heappush(self._due, (0.0, next(self._order), client))
        said = 0.0
        while len(self.done_s) < len(self._clients):
            now_s = time.monotonic() - began
            if now_s > give_up_s:
                done = f"{len(self.done_s)} of {len(self._clients)}"
                raise TimeoutError(f"{done} after {now_s:.0f} s")
            if now_s - said > 1:
                said = now_s
                self._say(f"{now_s:.0f} s: {len(self.done_s)}")
            self._begin_some(now_s)
            for descriptor, _ in self._poll.poll(self._wait_s(now_s)):
                self._go_on(self._by_fd[descriptor], began)
        return time.monotonic() - began

    def _wait_s(self, now_s: float) -> float:
        return 0.1 if not self._due else min(0.1, max(0.0, self._due[0][0] - now_s))

    def _begin_some(self, now_s: float) -> None:
        """Not all at once: those that are under way are not to wait for them."""
        for _ in range(50):
            if not self._due or self._due[0][0] > now_s:
                return
            _, _, client = heapq.heappop(self._due)
            try:
                made = client.begin(self._address)
            except OSError as error:
                self._again(client, now_s, error)
                continue
            self._by_fd[made.fileno()] = client
            self._poll.register(made.fileno(), _EVENTS)

    def _go_on(self, client: _Client, began: float) -> None:
        descriptor = client.socket.fileno() if client.socket is not None else -1
        try:
            done = client.go_on(self._context)
        except OSError as error:
            self._by_fd.pop(descriptor, None)
            if descriptor >= 0:
                self._poll.unregister(descriptor)
            self._again(client, time.monotonic() - began, error)
            return
        if done:
            self._poll.unregister(descriptor)
            del self._by_fd[descriptor]
            self.done_s.append(time.monotonic() - began)

    def _again(self, client: _Client, now_s: float, error: OSError) -> None:
        client.close()
        why = getattr(error, "reason", None) or error.strerror or type(error).__name__
        self.failures[why] = self.failures.get(why, 0) + 1
        wait_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** (client.attempts - 1))
        due_s = now_s + wait_s * self._random.uniform(0.8, 1.2)
        heapq.heappush(self._due, (due_s, next(self._order), client))

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._poll.close()
