"""A case's channel: connections to one side's broker, and the record of its answers.

A step of the record is an answer (`["Metadata v3", {...}]`, see answers.py) or, where none came, a
few words: "closed", or "nothing in 300 ms". An answer that is not for the oldest request of its
connection, or has bytes left over, or cannot be read, says so.

Beside the main connection every `Talk` has a hidden one for the preparations of a case: creating
topics, looking up ids. Its answers are not recorded.

One thread uses a Talk. Waiting is bounded: an answer has ANSWER_TIMEOUT_S.
"""

from __future__ import annotations

import json
import socket
import struct
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kbroker.security.client_login import ClientLogin
from kbroker.types import ApiKey
from tests.parity import answers, requests
from tests.parity.requests import NO_TAGS, Bytes, Tags, build

ANSWER_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 60.0
SETTLE_INTERVAL_S = 0.003
FIRST_CORRELATION_ID = 1000

Address = tuple[str, int]
View = Callable[[Any], Any]


class Closed(Exception):
    """The broker ended the connection."""


class Connection:
    """One connection to the broker. Correlation ids count from FIRST_CORRELATION_ID."""

    def __init__(self, address: Address, talk: Talk, source: str = "") -> None:
        self._talk = talk
        own = (source, 0) if source else None
        self._socket = socket.create_connection(address, ANSWER_TIMEOUT_S, own)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._correlation_id = FIRST_CORRELATION_ID
        self._waiting: deque[tuple[int, int, int]] = deque()  # correlation id, key, version
        self._held: list[bytes] | None = None

    # -- sending

    def send(
        self,
        request: Any,
        *,
        client_id: str | bytes | None = "parity",
        header_tags: Tags = NO_TAGS,
        tags: Tags = NO_TAGS,
        answered: bool = True,
    ) -> None:
        """Send without reading an answer; `receive` reads them in order.

        `answered=False` for a request that gets no answer (Produce with acks=0). `tags` go into the
        message's outermost tag section, `header_tags` into the header's.
        """
        if isinstance(request, Bytes):
            self.send_bytes(requests.frame(request.payload, request.announced))
            return
        if tags:
            request = requests.tagged(request, tags)
        key, version = requests.key_and_version(request)
        head = requests.header(key, version, self._correlation_id, client_id, header_tags)
        if answered:
            self._waiting.append((self._correlation_id, key, version))
        self._correlation_id += 1
        self.send_bytes(requests.frame(head + requests.body_of(request)))

    def expect(self, key: int, version: int, correlation_id: int) -> None:
        """Say how the answer to something sent as bytes is to be read."""
        self._waiting.append((correlation_id, key, version))

    def send_bytes(self, data: bytes) -> None:
        """These bytes, as they are."""
        if self._held is not None:
            self._held.append(data)
            return
        try:
            self._socket.sendall(data)
        except OSError:
            pass  # closed by the other side, as the next receive finds

    def hold(self) -> None:
        """Collect the requests until `release`, which sends them with one call."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        self.send_bytes(b"".join(held))

    def end_of_requests(self) -> None:
        """Shut down this side: the broker reads the end of the stream."""
        with suppress(OSError):  # closed by the other side, as the next receive finds
            self._socket.shutdown(socket.SHUT_WR)

    # -- receiving

    def receive(
        self,
        *,
        view: View | None = None,
        record: bool = True,
        within_ms: int | None = None,
    ) -> Any:
        """The next answer, decoded by kio, and a step of the record; None if there is none.

        `view` gets the plain data (answers.py) and returns the part of it that is recorded.
        """
        timeout = ANSWER_TIMEOUT_S if within_ms is None else within_ms / 1000
        try:
            payload = self._read_frame(timeout)
        except Closed:
            self._note("closed", record)
            return None
        except TimeoutError:
            self._note(f"nothing in {round(timeout * 1000)} ms", record)
            return None
        return self._understand(payload, view, record)

    def ask(
        self, request: Any, *, view: View | None = None, record: bool = True, **how: Any
    ) -> Any:
        """Send, then receive."""
        self.send(request, **how)
        return self.receive(view=view, record=record)

    def nothing(self, within_ms: int) -> Any:
        """Record that no answer comes within this time, or the answer that came."""
        return self.receive(within_ms=within_ms)

    def log_in(self, login: ClientLogin) -> None:
        """With SASL; not recorded."""
        made = self.ask(build(ApiKey.SASL_HANDSHAKE, 1, mechanism=login.mechanism), record=False)
        tokens = login.tokens()
        token = next(tokens)
        with suppress(StopIteration):
            while made is not None and not made.error_code.value:
                asked = build(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)
                made = self.ask(asked, record=False)
                token = tokens.send(made.auth_bytes) if made is not None else b""
        if made is None or made.error_code.value:
            raise AssertionError(f"{login} is not let in: {made}")

    def close(self) -> None:
        self._socket.close()

    def _read_frame(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        head = self._peek(4, deadline)
        (size,) = struct.unpack(">i", head)
        payload = self._peek(4 + size, deadline)[4:]
        self._received = self._received[4 + size :]
        return payload

    def _peek(self, size: int, deadline: float) -> bytes:
        while len(self._received) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(1 << 20)
            except ConnectionError as error:
                raise Closed from error
            if not more:
                raise Closed
            self._received += more
        return self._received[:size]

    def _understand(self, payload: bytes, view: View | None, record: bool) -> Any:
        (correlation_id,) = struct.unpack_from(">i", payload)
        place = next((i for i, w in enumerate(self._waiting) if w[0] == correlation_id), None)
        if place is None:
            self._note(["an answer to nothing", payload.hex()], record)
            return None
        _, key, version = self._waiting[place]
        del self._waiting[place]
        label = answers.label(key, version)
        if place:
            label += f", {place} too early"
        try:
            entity, left = answers.decode(key, version, payload[4:])
        except Exception as error:  # whatever kio raises on bytes that are no answer
            self._note([f"{label}, unreadable: {type(error).__name__}", payload[4:].hex()], record)
            return None
        if left:
            label += f", {len(left)} bytes left over"
        if record:
            data = answers.plain(entity, self._talk.aliases)
            self._talk.steps.append([label, data if view is None else view(data)])
        else:
            answers.know_topics(entity, self._talk.aliases)
        return entity

    def _note(self, step: Any, record: bool) -> None:
        if record:
            self._talk.steps.append(step)


class Talk:
    """One side of a case, and the record that it makes."""

    def __init__(self, address: Address, title: str, login: ClientLogin | None = None) -> None:
        """`login`: of its connections, where they have no other."""
        self._login = login
        self.steps: list[Any] = []
        self.aliases = answers.Aliases()
        self._address = address
        self._tag = _tag_of(title)
        self._connections: list[Connection] = []
        self._main: Connection | None = None
        self._hidden: Connection | None = None

    # -- the main connection, and more

    @property
    def main(self) -> Connection:
        if self._main is None:
            self._main = self.connect()
        return self._main

    def connect(self, source: str = "", login: ClientLogin | None = None) -> Connection:
        """Another connection of this case, from this address of the loopback network."""
        connection = Connection(self._address, self, source)
        self._connections.append(connection)
        login = login or self._login
        if login is not None:
            connection.log_in(login)
        return connection

    def ask(self, request: Any, **how: Any) -> Any:
        return self.main.ask(request, **how)

    def send(self, request: Any, **how: Any) -> None:
        self.main.send(request, **how)

    def receive(self, **how: Any) -> Any:
        return self.main.receive(**how)

    def nothing(self, within_ms: int) -> Any:
        return self.main.nothing(within_ms)

    def note(self, name: str, value: Any) -> None:
        """Record something that a case worked out itself."""
        self.steps.append([name, json.loads(json.dumps(value))])  # tuples are lists there

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    # -- the preparations of a case

    def quietly(self, request: Any) -> Any:
        """The answer to a request through the hidden connection; not recorded."""
        if self._hidden is None:
            self._hidden = self.connect()
        return self._hidden.ask(request, record=False)

    def name(self, name: str = "t") -> str:
        """A topic's name that no other case uses; the same on both sides."""
        return f"{name}-{self._tag}"

    @property
    def host(self) -> str:
        """An address of the loopback network that no other case uses, and that is not 127.0.0.1."""
        return _host_with(self._tag)

    def add_acls(self, *acls: tuple[int, str, int, int], principal: str = "User:ANONYMOUS") -> None:
        """ACLs of this case's host: type of resource, its name, operation, permission; in force
        afterwards."""
        creations = [
            {
                "host": self.host,
                "principal": principal,
                "permission_type": permission,
                "resource_type": type_,
                "resource_name": name,
                "resource_pattern_type": 3,
                "operation": operation,
            }
            for type_, name, operation, permission in acls
        ]
        if not creations:
            return
        before = self._count_acls()
        made = self.quietly(build(ApiKey.CREATE_ACLS, 3, creations=creations))
        if any(each.error_code.value for each in made.results):
            raise AssertionError(f"ACLs were not created: {made}")
        self.until(lambda: self._count_acls() == before + len({*acls}))

    def _count_acls(self) -> int:
        described = build(
            ApiKey.DESCRIBE_ACLS,
            3,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=self.host,
            operation=1,
            permission_type=1,
        )
        return sum(len(each.acls) for each in self.quietly(described).resources)

    def mine(self, name: str | None) -> bool:
        """Whether a name was made by this case."""
        return name is not None and self._tag in name

    def topic(
        self,
        name: str = "t",
        *,
        partitions: int = 1,
        configs: Mapping[str, str | None] | None = None,
    ) -> str:
        """A topic of this case's own, ready for use; returns its full name."""
        full = self.name(name)
        answer = self.quietly(
            build(
                ApiKey.CREATE_TOPICS,
                7,
                topics=[
                    {
                        "name": full,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "configs": [
                            {"name": key, "value": value} for key, value in (configs or {}).items()
                        ],
                    }
                ],
                timeout=30_000,
            )
        )
        if answer.topics[0].error_code.value:
            raise AssertionError(f"{full} was not created: {answer.topics[0]}")
        self.settled(full)
        return full

    def topic_id(self, name: str) -> uuid.UUID:
        """A topic's id on this side."""
        found: uuid.UUID = self._metadata(name).topic_id
        self.aliases.know(found, f"id of {name}")
        return found

    def delete(self, name: str) -> None:
        """Delete a topic of this case, and wait until it is gone."""
        topics = [{"name": name, "topic_id": None}]
        self.quietly(build(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=30_000))
        self.gone(name)

    def settled(self, *names: str) -> None:
        """Wait until topics (created by the case itself, say) can be used."""
        for name in names:
            self.until(lambda name=name: self._usable(name))

    def gone(self, *names: str) -> None:
        """Wait until the broker knows of the topics' end."""
        for name in names:
            self.until(lambda name=name: self._metadata(name).error_code.value == 3)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, which the broker brings about a moment after an answer."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the broker has not settled")
            time.sleep(SETTLE_INTERVAL_S)

    def _metadata(self, name: str) -> Any:
        topics = [{"name": name, "topic_id": None}]
        asked = build(ApiKey.METADATA, 12, topics=topics, allow_auto_topic_creation=False)
        return self.quietly(asked).topics[0]

    def _usable(self, name: str) -> bool:
        topic = self._metadata(name)
        if topic.error_code.value or any(p.error_code.value for p in topic.partitions):
            return False
        indexes = sorted(p.partition_index for p in topic.partitions)
        return all(code == 0 for code in self._latest_errors(name, indexes))

    def _latest_errors(self, name: str, partitions: Sequence[int]) -> list[int]:
        asked = build(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            topics=[
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": i, "current_leader_epoch": -1, "timestamp": -1}
                        for i in partitions
                    ],
                }
            ],
        )
        (topic,) = self.quietly(asked).topics
        return [partition.error_code.value for partition in topic.partitions]


def host_of(title: str) -> str:
    """The host of a case's ACLs."""
    return _host_with(_tag_of(title))


def _tag_of(title: str) -> str:
    return f"{zlib.crc32(title.encode()):08x}"


def _host_with(tag: str) -> str:
    digits = int(tag, 16)
    return f"127.{1 + digits % 250}.{digits >> 8 & 255}.{1 + (digits >> 16) % 250}"
