"""Names that no client should have, sent to a broker: what others see of it, and what its log has.

Each of these once broke ListGroups or another's group until a restart, forged lines of the log, or
wrote more of it than was sent.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol.wire import Reader
from kbroker.testing.plain import PlainBroker as Broker
from tests.system.test_hostile import answer, connect, eventually

pytestmark = pytest.mark.client

COMMIT, FIND, JOIN, HEARTBEAT, SYNC, DESCRIBE, LIST = 8, 10, 11, 12, 14, 15, 16
DELETE_TOPICS = 20
NO_UTF8 = b"\xff" * 11_000
OPTIONS = {"group.initial.rebalance.delay.ms": "0"}


def text(value: bytes | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


def ask(broker: Broker, key: int, version: int, body: bytes, client: bytes = b"c") -> Reader:
    """The answer's body; EOFError if the connection was closed."""
    head = struct.pack(">hhi", key, version, 7) + text(client)
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        try:
            return Reader(answer(connection)[4:], flexible=False)
        except struct.error:
            raise EOFError from None


def join(
    broker: Broker,
    group: bytes,
    *,
    version: int = 3,
    member: bytes = b"",
    instance: bytes | None = None,
    protocol: bytes = b"range",
    client: bytes = b"c",
) -> tuple[ErrorCode, int, str]:
    """(error, generation, member id)."""
    body = text(group) + struct.pack(">ii", 10_000, 3_000) + text(member)
    body += text(instance) if version >= 5 else b""
    body += text(b"consumer") + struct.pack(">i", 1) + text(protocol) + struct.pack(">i", 0)
    answered = ask(broker, JOIN, version, body, client)
    answered.int32()
    code, generation = ErrorCode(answered.int16()), answered.int32()
    answered.string()
    answered.string()
    return code, generation, answered.string()


def joined(broker: Broker, group: bytes) -> tuple[ErrorCode, int, str]:
    """The same, once the group's partition is loaded: its coordinator is found a moment before."""
    answered = [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, "")]

    def is_loaded() -> bool:
        answered[0] = join(broker, group)
        return answered[0][0] is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    assert eventually(is_loaded)
    return answered[0]


def listed(broker: Broker) -> set[str]:
    answered = ask(broker, LIST, 2, b"")
    answered.int32()
    assert answered.int16() == ErrorCode.NONE
    return {(answered.string(), answered.string())[0] for _ in range(answered.array())}


def found(broker: Broker) -> bool:
    """Whether there is a coordinator; asking has its topic made."""
    answered = ask(broker, FIND, 1, text(b"g") + b"\0")
    answered.int32()
    return answered.int16() == ErrorCode.NONE


@pytest.fixture(scope="module")
def named() -> Iterator[Broker]:
    with Broker(overrides=OPTIONS) as broker:
        assert eventually(lambda: found(broker))
        assert joined(broker, b"stranger")[0] is ErrorCode.NONE
        yield broker


@pytest.mark.parametrize(
    "odd",
    [
        {"group": NO_UTF8},
        {"group": b"stranger", "client": b"c" * 32_760},
        {"group": b"new", "client": b"c" * 32_760},
        {"group": b"stranger", "version": 5, "instance": b"i" * 32_760},
        {"group": b"stranger", "version": 5, "instance": NO_UTF8},
        {"group": b"stranger", "protocol": NO_UTF8},
    ],
)
def test_a_name_too_long_for_an_answer_is_no_member(named: Broker, odd: dict[str, bytes]) -> None:
    before = listed(named)
    code, _, member_id = join(named, odd.pop("group"), **odd)  # type: ignore[arg-type]
    assert (code, member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert listed(named) == before >= {"stranger"}


def test_an_answer_that_cannot_be_said_ends_its_connection_and_nothing_else(named: Broker) -> None:
    with pytest.raises(EOFError):
        ask(named, DESCRIBE, 4, struct.pack(">i", 1) + text(NO_UTF8) + b"\0")
    with pytest.raises(EOFError):  # written by kio's schemas, the one before by our own
        ask(named, DELETE_TOPICS, 2, struct.pack(">i", 1) + text(NO_UTF8) + struct.pack(">i", 100))
    assert " failed: " not in named.log_text()
    answered = ask(
        named, HEARTBEAT, 3, text(NO_UTF8) + struct.pack(">i", 1) + text(b"m") + text(None)
    )
    answered.int32()
    assert answered.int16() == ErrorCode.UNKNOWN_MEMBER_ID
    assert "stranger" in listed(named)


def test_lines_of_the_log_are_ours(named: Broker) -> None:
    forged = b"x\n[2026-11-22 15:12:14,866] ERROR the disk is full (kbroker.log)"
    assert joined(named, forged)[0] is ErrorCode.NONE
    lines = named.log_text().splitlines()
    assert not any(line.startswith("[2026-11-22 15:12:14,866]") for line in lines)
    assert any("group x\\n[2026" in line for line in lines)


def test_the_log_grows_by_less_than_was_sent(named: Broker) -> None:
    before = len(named.log_text())

    def join_many(thread: int) -> int:
        names = [b"%d-%d-" % (thread, number) + b"g" * 30_000 for number in range(100)]
        return sum(joined(named, name)[0] is ErrorCode.NONE for name in names)

    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(join_many, range(4))) == 400
    grown = len(named.log_text()) - before
    # Of 12 MB. Of each second there are 20 lines at most.
    assert grown < max(100_000, 10_000 * (time.monotonic() - began))
    assert max(map(len, named.log_text().splitlines())) < 5_000
