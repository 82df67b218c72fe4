"""The SASL exchange beside Apache Kafka's: the same frames to both, the same answers and ends.

A talk is a list of frames. What comes back is compared byte by byte, but for nonces, salts and
signatures, and so is whether the connection ends, and whether that is after the delay.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from kbroker.protocol import messages
from kbroker.protocol.versions import request_header_version, response_header_version
from kbroker.protocol.wire import encode_string
from kbroker.security.client_login import ClientLogin
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.support.kafka_sasl import MECHANISMS, PASSWORD, SETTINGS, USER, SaslKafkaBroker

pytestmark = pytest.mark.java
DELAY_MS = 2_000  # long, so that an end at once differs from a late one on a busy machine
WAIT_S = 30
AT_A_TIME = 10
CORRELATION_ID = 9


class Sides(NamedTuple):
    kafka: int
    ours: int


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    port = free_port()
    delay = {"connection.failed.authentication.delay.ms": DELAY_MS}
    overrides = {
        **SETTINGS,
        **delay,
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "admin.listeners": "http://127.0.0.1:0",
    }

    class Ours(PlainBroker):
        def command(self) -> list[str]:
            users = (f"{each}=[name={USER},password={PASSWORD}]" for each in MECHANISMS[1:])
            return [*super().command(), *(word for user in users for word in ("--add-scram", user))]

    theirs = SaslKafkaBroker()
    theirs.overrides.update(delay)
    with theirs, Ours(overrides):
        yield Sides(theirs.secure_port, port)


class Talk:
    """One connection; `said` is what the broker did."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._stream = self._socket.makefile("rb")
        self.said: list[object] = []

    def send(self, frame: bytes, size: int | None = None) -> bytes | None:
        """The answer; None: the connection has ended instead."""
        began = time.monotonic()
        try:
            self._socket.sendall(struct.pack(">i", len(frame) if size is None else size) + frame)
            head = self._stream.read(4)
        except ConnectionError:
            head = b""
        late = time.monotonic() - began > DELAY_MS / 2000
        if len(head) < 4:
            self.said.append(("ended", "late" if late else "at once"))
            return None
        answer = self._stream.read(struct.unpack(">i", head)[0])
        self.said.append(("answered", "late" if late else "at once"))
        return answer

    def ends(self) -> None:
        self._socket.settimeout(0.3)
        try:
            ended = self._stream.read(1) == b""
        except ConnectionError:
            ended = True
        except TimeoutError:
            ended = False
        self.said.append("then it ended" if ended else "then it stayed")
        self._socket.close()


def framed(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", key, version, CORRELATION_ID)
    tags = b"\0" * (request_header_version(key, version) == 2)
    return header + encode_string("me", flexible=False) + tags + body


def handshake(mechanism: str, version: int) -> bytes:
    body = messages.sasl_handshake.Request(mechanism=mechanism).encode(version)
    return framed(ApiKey.SASL_HANDSHAKE, version, body)


def authenticate(token: bytes, version: int) -> bytes:
    body = messages.sasl_authenticate.Request(auth_bytes=token).encode(version)
    return framed(ApiKey.SASL_AUTHENTICATE, version, body)


def api_versions(version: int) -> bytes:
    body = b""
    if version >= 3:
        body = encode_string("me", flexible=True) + encode_string("1.0", flexible=True) + b"\0"
    return framed(ApiKey.API_VERSIONS, version, body)


def decoded(key: ApiKey, version: int, answer: bytes | None) -> Any:
    if answer is None:
        return None
    table = getattr(messages, key.name.lower())
    assert struct.unpack_from(">i", answer) == (CORRELATION_ID,)
    return table.Response.decode(answer[4 + response_header_version(key, version) :], version)


Script = Callable[[Talk], None]


def tell(talk: Talk, key: ApiKey, version: int, frame: bytes) -> Any:
    """Sends it, and notes the answer's fields that have to be the same."""
    found = decoded(key, version, talk.send(frame))
    for name in ("error_code", "error_message", "session_lifetime_ms"):
        if found is not None and hasattr(found, name):
            talk.said.append((name, getattr(found, name)))
    if found is not None and hasattr(found, "mechanisms"):
        talk.said.append(sorted(found.mechanisms))
    return found


def login(mechanism: str, version: int, user: str = USER, password: str = PASSWORD) -> Script:
    def run(talk: Talk) -> None:
        named = tell(talk, ApiKey.SASL_HANDSHAKE, 1, handshake(mechanism, 1))
        if named is None or named.error_code:
            return
        tokens = ClientLogin(mechanism, user, password).tokens()
        token = next(tokens)
        while True:
            frame = authenticate(token, version)
            answer = tell(talk, ApiKey.SASL_AUTHENTICATE, version, frame)
            if answer is None or answer.error_code:
                return
            try:
                token = tokens.send(answer.auth_bytes)
            except StopIteration:
                break
        tell(talk, ApiKey.SASL_HANDSHAKE, 1, handshake(mechanism, 1))
        tell(talk, ApiKey.SASL_AUTHENTICATE, version, authenticate(b"", version))

    return run


def raw_login(mechanism: str, password: str) -> Script:
    def run(talk: Talk) -> None:
        tell(talk, ApiKey.SASL_HANDSHAKE, 0, handshake(mechanism, 0))
        tokens = ClientLogin(mechanism, USER, password).tokens()
        token = next(tokens)
        while True:
            answer = talk.send(token)
            if answer is None:
                return
            try:
                token = tokens.send(answer)
            except StopIteration:
                break
        talk.send(api_versions(0))

    return run


def frames(*each: bytes) -> Script:
    def run(talk: Talk) -> None:
        for frame in each:
            if talk.send(frame) is None:
                return

    return run


def token_of(mechanism: str, token: bytes, version: int = 2) -> Script:
    def run(talk: Talk) -> None:
        tell(talk, ApiKey.SASL_HANDSHAKE, 1, handshake(mechanism, 1))
        tell(talk, ApiKey.SASL_AUTHENTICATE, version, authenticate(token, version))

    return run


def another(key: ApiKey, version: int, /, **fields: Any) -> Script:
    """A request of another API instead of a token."""

    def run(talk: Talk) -> None:
        tell(talk, ApiKey.SASL_HANDSHAKE, 1, handshake("PLAIN", 1))
        request = getattr(messages, key.name.lower()).Request(**fields)
        tell(talk, key, version, framed(key, version, request.encode(version)))

    return run


def tokens_asked_for(key: ApiKey, version: int, /, **fields: Any) -> Script:
    """Delegation tokens, which neither side gives, of a client that has logged in."""

    def run(talk: Talk) -> None:
        tell(talk, ApiKey.SASL_HANDSHAKE, 1, handshake("PLAIN", 1))
        token = next(ClientLogin("PLAIN", USER, PASSWORD).tokens())
        tell(talk, ApiKey.SASL_AUTHENTICATE, 2, authenticate(token, 2))
        request = getattr(messages, key.name.lower()).Request(**fields)
        found = tell(talk, key, version, framed(key, version, request.encode(version)))
        if key is ApiKey.CREATE_DELEGATION_TOKEN and found is not None:
            talk.said.append((found.principal_type, found.principal_name))
            talk.said.append(found.token_requester_principal_name)

    return run


CREATE_TOKEN = messages.create_delegation_token


def renewer(kind: str) -> Any:
    return CREATE_TOKEN.CreatableRenewers(principal_type=kind, principal_name="r")


def sized(size: int) -> Script:
    def run(talk: Talk) -> None:
        talk.send(handshake("PLAIN", 1))
        talk.send(b"", size)

    return run


SCRIPTS: dict[str, Script] = {
    **{f"{each} v{v}": login(each, v) for each in MECHANISMS for v in range(3)},
    **{f"{each} wrong password": login(each, 2, password="x") for each in MECHANISMS},
    **{f"{each} unknown user": login(each, 1, user="eve") for each in MECHANISMS},
    **{f"{each} raw": raw_login(each, PASSWORD) for each in MECHANISMS},
    "PLAIN raw, wrong password": raw_login("PLAIN", "x"),
    "unknown mechanism": login("X", 1),
    "mechanism in small letters": login("plain", 1),
    "unknown mechanism v0": lambda talk: tell(
        talk, ApiKey.SASL_HANDSHAKE, 0, handshake("GSSAPI", 0)
    ),
    **{f"ApiVersions v{v} first": frames(api_versions(v), handshake("PLAIN", 1)) for v in range(5)},
    "ApiVersions twice": frames(api_versions(0), api_versions(0)),
    "ApiVersions of no version, then one": frames(api_versions(99), api_versions(3)),
    "ApiVersions of no version, twice": frames(api_versions(99), api_versions(99), api_versions(3)),
    "ApiVersions after ApiVersions of no version": frames(api_versions(3), api_versions(99)),
    "ApiVersions after the handshake": frames(handshake("PLAIN", 1), api_versions(0)),
    "ApiVersions of no version after the handshake": frames(
        handshake("PLAIN", 1), api_versions(99)
    ),
    "Metadata first": frames(framed(3, 1, struct.pack(">i", -1))),
    "SaslAuthenticate first": frames(authenticate(b"", 2)),
    "SaslHandshake of no version": frames(framed(17, 2, b"\0\0")),
    "no header": frames(b"\0"),
    "an empty frame": frames(b""),
    "no API": frames(framed(999, 0, b"")),
    "HTTP": frames(b"GET / HTTP/1.1\r\n\r\n"),
    "SaslAuthenticate of no version": frames(handshake("PLAIN", 1), framed(36, 3, b"\0\0")),
    "SaslAuthenticate cut off": frames(handshake("PLAIN", 1), framed(36, 1, b"\0\0")),
    "two handshakes": frames(handshake("PLAIN", 1), handshake("PLAIN", 1)),
    "Metadata instead of a token": another(ApiKey.METADATA, 1, topics=None),
    "ListGroups instead of a token": another(ApiKey.LIST_GROUPS, 4),
    "FindCoordinator instead of a token": another(ApiKey.FIND_COORDINATOR, 2, key="g"),
    "DescribeCluster instead of a token": another(ApiKey.DESCRIBE_CLUSTER, 0),
    **{
        f"CreateDelegationToken v{v}": tokens_asked_for(
            ApiKey.CREATE_DELEGATION_TOKEN, v, renewers=[renewer("User")], max_lifetime_ms=1
        )
        for v in range(1, 4)
    },
    "CreateDelegationToken for another": tokens_asked_for(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=[],
        max_lifetime_ms=1,
    ),
    "CreateDelegationToken with a renewer of another type": tokens_asked_for(
        ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[renewer("Group")], max_lifetime_ms=1
    ),
    "RenewDelegationToken": tokens_asked_for(
        ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=b"x", renew_period_ms=1
    ),
    "ExpireDelegationToken": tokens_asked_for(
        ApiKey.EXPIRE_DELEGATION_TOKEN, 2, hmac=b"x", expiry_time_period_ms=1
    ),
    "DescribeDelegationToken": tokens_asked_for(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None),
    "token too large": sized(524_289),
    "token of a negative size": sized(-1),
    "PLAIN without fields": token_of("PLAIN", b"alice"),
    "PLAIN without a password": token_of("PLAIN", b"\0alice\0"),
    "PLAIN without a name": token_of("PLAIN", b"\0\0x"),
    "PLAIN for another": token_of("PLAIN", f"bob\0{USER}\0{PASSWORD}".encode()),
    "PLAIN for itself": token_of("PLAIN", f"{USER}\0{USER}\0{PASSWORD}".encode()),
    "PLAIN with a fourth field": token_of("PLAIN", f"\0{USER}\0{PASSWORD}\0".encode()),
    "PLAIN, empty": token_of("PLAIN", b""),
    "SCRAM, empty": token_of("SCRAM-SHA-256", b""),
    "SCRAM for another": token_of("SCRAM-SHA-256", b"n,a=bob,n=alice,r=abc"),
    "SCRAM with channel binding": token_of("SCRAM-SHA-256", b"y,,n=alice,r=abc"),
    "SCRAM with an extension": token_of("SCRAM-SHA-256", b"n,,n=alice,r=abc,x=1"),
    "SCRAM with a wrong escape": token_of("SCRAM-SHA-256", b"n,,n=al=ice,r=abc"),
    "SCRAM without a nonce": token_of("SCRAM-SHA-256", b"n,,n=alice,r="),
}
# Talks that are not the same, and why.
DIFFERENCES = {
    "FindCoordinator instead of a token": "its message is the code's own at Kafka",
    # Its message says which user there is not, at once; ours at the end, as for a wrong password.
    "SCRAM-SHA-256 unknown user": "an unknown user fails where a wrong password does",
    "SCRAM-SHA-512 unknown user": "an unknown user fails where a wrong password does",
    "token too large": "the network core ends it at once",
    "token of a negative size": "the network core ends it at once",
}


def run(script: Script, port: int) -> list[object]:
    talk = Talk(port)
    script(talk)
    talk.ends()
    return talk.said


@pytest.fixture(scope="module")
def talks(request: pytest.FixtureRequest, sides: Sides) -> Iterator[dict[str, list[Future[Any]]]]:
    """What Apache Kafka and we say to each script of this run. Most talks wait for the delay, so
    several are held at a time."""
    items: list[Any] = request.session.items
    chosen = [
        item.callspec.params["name"]
        for item in items
        if getattr(item, "originalname", "") == test_the_same_as_at_kafka.__name__
    ]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: [pool.submit(run, SCRIPTS[name], port) for port in sides] for name in chosen}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_as_at_kafka(talks: dict[str, list[Future[Any]]], name: str) -> None:
    theirs, ours = (talk.result() for talk in talks[name])
    if name in DIFFERENCES:
        assert ours != theirs, "it is the same now"
        assert ours[-1] == theirs[-1]
    else:
        assert ours == theirs
