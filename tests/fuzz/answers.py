"""What the fuzzer counts: answers by API and error code, closed connections, and what is wrong.

An answer is looked at twice: every one for its first error code, and one in SAMPLE, or in
SAMPLE_WRONG of those that say what is wrong with records, by kio's reader, which must use up all of
its bytes. Both know only what the frame that was sent says of itself, its
key and version, as the broker does.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from kio.serial import entity_reader
from kio.serial.errors import InvalidUnicode, OutOfBoundValue

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey
from tests.fuzz.schema import first_error
from tests.support import schemas

SAMPLE: Final = 256
SAMPLE_WRONG: Final = 16
FAILURES_MAX: Final = 20
UNSUPPORTED_VERSION: Final = 35
UNKNOWN_SERVER_ERROR: Final = -1
# Where Apache Kafka answers so by intention: an operation that does not exist, a negative count or
# number, a name that is null or empty. An unintended failure is in the log as well.
ANSWER_IT: Final = {
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS,
}
# Their answers have times that are -1, which kio does not read.
TIMES_OF_NOTHING: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
ISOLATION_LEVELS: Final = (0, 1)  # a Fetch of another is answered so, too
# Of bytes that are no text a string has three times as many as were sent, and an answer that tells
# it again cannot be sent; nor can the id that a member is given, which has its client's in it.
UNTELLABLE_BYTES: Final = 9_000
LONGEST_CLIENT_ID: Final = 32_767 - len("-00000000-0000-0000-0000-000000000000")
NO_CODE: Final = 1 << 16  # an answer that has no error code at all

FETCH_FLEXIBLE: Final = 12
FETCH_WITH_REPLICA_ID_MAX: Final = 14
_CLIENT_ID: Final = 12  # where its length is in a frame with its size

_KEY_VERSION: Final = struct.Struct(">hh")


@dataclass
class Tally:
    """The figures of one worker; `add` sums them."""

    frames: int = 0
    answers: Counter[tuple[int, int]] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)  # by the key of the frame that did it
    silent: int = 0  # produce without acks
    waited: int = 0  # fetches that were given up while they waited
    broken: Counter[str] = field(default_factory=Counter)  # what became of broken framing
    connects: int = 0
    decoded: int = 0
    record_errors: int = 0  # in the sample: a record was named as the wrong one
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)  # the first frame of a kind
    failures: list[str] = field(default_factory=list)

    def fail(self, what: str) -> None:
        if len(self.failures) < FAILURES_MAX:
            self.failures.append(what)

    def add(self, other: Tally) -> None:
        self.frames += other.frames
        self.answers += other.answers
        self.closes += other.closes
        self.silent += other.silent
        self.waited += other.waited
        self.broken += other.broken
        self.connects += other.connects
        self.decoded += other.decoded
        self.record_errors += other.record_errors
        for kind, number in other.numbers.items():
            self.numbers[kind] = min(number, self.numbers.get(kind, number))
        self.failures += other.failures[: FAILURES_MAX - len(self.failures)]

    def answer(self, number: int, frame: bytes, payload: bytes) -> None:
        """Counts the answer to a frame; `payload` begins with the correlation id."""
        key, version = _KEY_VERSION.unpack_from(frame, 4)
        try:
            code = _code_of(key, version)(payload)
        except (LookupError, struct.error) as error:
            self.fail(f"frame {number}: no answer of {key} v{version}: {error!r} {payload[:64]!r}")
            return
        self.answers[key, code] += 1
        if (key, code) not in self.numbers:
            self.numbers[key, code] = number
        if code == UNKNOWN_SERVER_ERROR and not may_fail(key, version, frame):
            self.fail(f"frame {number}: UNKNOWN_SERVER_ERROR from {key} v{version}")
        if number % (SAMPLE_WRONG if code == ErrorCode.INVALID_RECORD else SAMPLE) == 0:
            self._decode(number, key, version, code, payload)

    def _decode(self, number: int, key: int, version: int, code: int, payload: bytes) -> None:
        if code == UNSUPPORTED_VERSION and key == ApiKey.API_VERSIONS:
            version = 0
        try:
            at = _header_bytes(key, version)
            answer, size = _reader(key, version)(payload, at)
        except InvalidUnicode:
            return  # a name that is no text comes back as it was sent
        except Exception as error:
            if isinstance(error, OutOfBoundValue) and key in TIMES_OF_NOTHING:
                return
            self.fail(f"frame {number}: kio cannot read the answer of {key} v{version}: {error!r}")
            return
        if at + size != len(payload):
            self.fail(f"frame {number}: {len(payload) - at - size} bytes after the answer")
        self.decoded += 1
        if key == ApiKey.PRODUCE and version >= 8:
            self.record_errors += any(
                p.record_errors for t in answer.responses for p in t.partition_responses
            )


def may_fail(key: int, version: int, frame: bytes) -> bool:
    """Whether UNKNOWN_SERVER_ERROR is what Apache Kafka would answer, too."""
    if key == ApiKey.FETCH and isolation_level(version, frame) not in ISOLATION_LEVELS:
        return True
    if key == ApiKey.JOIN_GROUP and client_id_bytes(frame) > LONGEST_CLIENT_ID:
        return True
    return key in ANSWER_IT or frame.count(b"\xff") >= UNTELLABLE_BYTES


def client_id_bytes(frame: bytes) -> int:
    """As long as it is when it is sent again."""
    (length,) = struct.unpack_from(">h", frame, _CLIENT_ID)
    return len(frame[_CLIENT_ID + 2 :][: max(0, length)].decode(errors="replace").encode())


def isolation_level(version: int, frame: bytes) -> int:
    """Of a Fetch that the broker could read."""
    (length,) = struct.unpack_from(">h", frame, _CLIENT_ID)
    body = Reader(frame[_CLIENT_ID + 2 + max(0, length) :], flexible=version >= FETCH_FLEXIBLE)
    body.tags()
    # A wait and two bounds stand before it, and up to version 14 the replica's id.
    for _ in range(4 if version <= FETCH_WITH_REPLICA_ID_MAX else 3):
        body.int32()
    return body.int8()


def _header_bytes(key: int, version: int) -> int:
    return 5 if key != ApiKey.API_VERSIONS and is_flexible(key, version) else 4


def _response_class(key: int, version: int) -> Any:
    return getattr(schemas.response_module(key, version), f"{ApiKey(key).label}Response")


@cache
def _reader(key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    return entity_reader(_response_class(key, version))


@cache
def _code_of(key: int, version: int) -> Callable[[bytes], int]:
    api = ApiKey.for_key(key)
    served = None if api is None else SERVED.get(api)
    if served is None or version not in served:
        if key != ApiKey.API_VERSIONS:
            raise LookupError("it is not served")
        return lambda payload: int(struct.unpack_from(">h", payload, 4)[0])
    find = first_error(_response_class(key, version))
    at = _header_bytes(key, version)

    def code(payload: bytes) -> int:
        found = find(payload, at)
        return NO_CODE if found is None else found

    return code
