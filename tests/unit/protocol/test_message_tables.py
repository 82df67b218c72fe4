"""Every table against kio's schema of the same message, in every version, field by field and byte
by byte.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pkgutil
import random
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from types import ModuleType, NoneType
from typing import Any, Final, cast, get_args, get_origin
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from kbroker.clock import let_go_of_gil
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded, Kind
from kbroker.protocol.messages.table import OWN_TAGS_SINCE, Field, Message, Record
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from tests.support import schemas

# kio's names of the types that hold the same bytes.
KAFKA_TYPES: Final = {
    "timedelta_i32": Kind.INT32,
    "timedelta_i64": Kind.INT64,
    "datetime_i64": Kind.INT64,
    "error_code": Kind.INT16,
    "bool": Kind.BOOLEAN,
    "int8": Kind.INT8,
    "int16": Kind.INT16,
    "int32": Kind.INT32,
    "int64": Kind.INT64,
    "uint16": Kind.UINT16,
    "uint32": Kind.UINT32,
    "float64": Kind.FLOAT64,
    "uuid": Kind.UUID,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
    "records": Kind.BYTES,
}
TIMES: Final = ("timedelta_i32", "timedelta_i64", "datetime_i64")


TABLES: Final = [
    module.name
    for module in pkgutil.iter_modules(messages.__path__)
    if module.name not in ("table", "failures")
]
# Between brokers, in versions that kio does not have: see test_between_brokers_bytes.py.
NOT_IN_KIO: Final = ("controlled_shutdown", "update_metadata")


def every_message() -> list[Any]:
    return list(_every_message())


def _every_message() -> Iterator[Any]:
    for name in TABLES:
        table = getattr(messages, name)
        if name in NOT_IN_KIO:
            continue
        for direction in ("Request", "Response"):
            message = getattr(table, direction)
            for version in range(message.versions[0], message.versions[1] + 1):
                yield pytest.param(message, version, id=f"{name}.{direction} v{version}")


def kio_class(message: type[Message], version: int) -> Any:
    assert message.api is not None
    is_request = message.__name__ == "Request"
    module: ModuleType = (
        schemas.request_module(message.api, version)
        if is_request
        else schemas.response_module(message.api, version)
    )
    return getattr(module, f"{message.api.label}{message.__name__}")


def present(record: type[Record], version: int) -> dict[str, Field]:
    """Fields of Kafka's; those of ours are not sent while they have their defaults."""
    return {
        name: field
        for name, field in record.fields.items()
        if field.since <= version <= field.until and (field.tag or 0) < OWN_TAGS_SINCE
    }


def parts(annotation: Any) -> tuple[Any, bool, bool]:
    """The inner type, whether it is an array, whether it may be null."""
    inner = [part for part in get_args(annotation) if part is not NoneType]
    null = NoneType in get_args(annotation)
    if null:
        (annotation,) = inner
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, null
    return annotation, False, null


def assert_same_fields(record: type[Record], theirs: Any, version: int) -> None:
    ours = present(record, version)
    their_fields = {f.name: f for f in dataclasses.fields(theirs)}
    hints = schemas_hints(theirs)
    names = {n.removesuffix("_ms") if n.removesuffix("_ms") in their_fields else n: n for n in ours}
    assert list(names) == list(their_fields), theirs
    for name, mine in names.items():
        field, other = ours[mine], their_fields[name]
        inner, is_array, null = parts(hints[name])
        packed = field.kind is Kind.PACKED_INT32
        assert (field.is_array or packed) == is_array, (theirs, name)
        # kio has None for the zero id, and for the time -1.
        if field.kind is not Kind.UUID and other.metadata.get("kafka_type") != "datetime_i64":
            assert (version >= field.null) == null, (theirs, name)
        assert field.tag == other.metadata.get("tag"), (theirs, name)
        if dataclasses.is_dataclass(inner):
            assert field.record is not None, (theirs, name)
            assert_same_fields(field.record, inner, version)
        elif packed:
            assert other.metadata["kafka_type"] == "int32", (theirs, name)
        else:
            assert KAFKA_TYPES[other.metadata["kafka_type"]] is field.kind, (theirs, name)


def schemas_hints(theirs: Any) -> dict[str, Any]:
    return {f.name: f.type for f in dataclasses.fields(theirs)}


@pytest.mark.parametrize(("message", "version"), every_message())
def test_fields_are_those_of_the_schema(message: type[Message], version: int) -> None:
    assert_same_fields(message, kio_class(message, version), version)


@pytest.mark.parametrize(("message", "version"), every_message())
def test_bytes_are_those_of_the_schema(message: type[Message], version: int) -> None:
    """What is written is read by kio, to the last byte, and kio writes the same."""
    theirs = kio_class(message, version)
    dice = random.Random(f"{theirs} {version}")
    for _ in range(20):
        record = some(message, theirs, version, dice)
        body = record.encode(version)
        entity, size = entity_reader(theirs)(body, 0)
        assert size == len(body)
        out = io.BytesIO()
        entity_writer(theirs)(out, entity)
        assert out.getvalue() == body
        assert message.decode(body, version) == record


def some(record: type[Record], theirs: Any, version: int, dice: random.Random) -> Any:
    """A record with values of every kind; a field that the version lacks has its default."""
    kio_fields = {f.name: f for f in dataclasses.fields(theirs)}
    values: dict[str, Any] = {}
    for name, field in present(record, version).items():
        other = kio_fields.get(name) or kio_fields[name.removesuffix("_ms")]
        inner, _, _ = parts(other.type)
        if version >= field.null and dice.random() < 0.3:
            values[name] = None
        elif field.is_array:
            values[name] = [
                one(field, inner, other, version, dice) for _ in range(dice.randrange(3))
            ]
        else:
            values[name] = one(field, inner, other, version, dice)
    return record(**values)


def one(field: Field, inner: Any, other: Any, version: int, dice: random.Random) -> Any:
    kafka_type = other.metadata.get("kafka_type")
    if field.record is not None:
        return some(field.record, inner, version, dice)
    if kafka_type == "error_code":
        return dice.randrange(-1, 90)
    if kafka_type in TIMES:
        return dice.randrange(10**6)
    match field.kind:
        case Kind.BOOLEAN:
            return dice.random() < 0.5
        case Kind.INT8:
            return dice.randrange(-(2**7), 2**7)
        case Kind.INT16:
            return dice.randrange(-(2**15), 2**15)
        case Kind.INT32:
            return dice.randrange(-(2**31), 2**31)
        case Kind.INT64:
            return dice.randrange(-(2**63), 2**63)
        case Kind.UINT16:
            return dice.randrange(2**16)
        case Kind.UINT32:
            return dice.randrange(2**32)
        case Kind.FLOAT64:
            return dice.random()
        case Kind.UUID:
            return UUID(int=dice.getrandbits(128))
        case Kind.STRING:
            return dice.choice(["", "a", "ärger", "x" * 200])
        case Kind.BYTES:
            return dice.randbytes(dice.randrange(200))
        case Kind.PACKED_INT32:
            return dice.randbytes(4 * dice.randrange(5))
    raise AssertionError(field)


HEARTBEAT: Final = messages.heartbeat
JOIN: Final = messages.join_group
METADATA: Final = messages.metadata


def test_a_message_that_ends_early_is_refused_wherever_it_ends() -> None:
    body = JOIN.Request(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer",
        protocols=[JOIN.Protocol(name="range", metadata=b"abc")], reason="why",
    ).encode(9)  # fmt: skip
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            JOIN.Request.decode(body[:size], 9)


@pytest.mark.parametrize(("message", "version"), every_message())
def test_bytes_that_were_changed_are_read_or_refused(message: type[Message], version: int) -> None:
    theirs = kio_class(message, version)
    dice = random.Random(f"changed {theirs} {version}")
    for _ in range(20):
        body = bytearray(some(message, theirs, version, dice).encode(version))
        for _ in range(dice.randrange(1, 4) if body else 0):
            body[dice.randrange(len(body))] = dice.randrange(256)
        with contextlib.suppress(ProtocolError):
            message.decode(bytes(body), version)


def test_a_count_takes_no_more_memory_than_was_received() -> None:
    """2,147,483,647 items in a message of twenty bytes."""
    body = JOIN.Request(group_id="g", session_timeout_ms=1, member_id="", protocol_type="",
                        protocols=[]).encode(0)[:-4] + b"\x7f\xff\xff\xff"  # fmt: skip
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            JOIN.Request.decode(body, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_null_where_the_version_has_none_is_refused_both_ways() -> None:
    body = HEARTBEAT.Request(group_id="g", generation_id=1, member_id="m").encode(0)
    with pytest.raises(ProtocolError, match="group_id"):
        HEARTBEAT.Request.decode(b"\xff\xff" + body[3:], 0)
    with pytest.raises(ValueError, match="group_id"):
        HEARTBEAT.Request(group_id=cast("str", None), generation_id=1, member_id="m").encode(0)


def test_a_field_that_a_version_lacks_is_left_out_and_has_its_default() -> None:
    request = HEARTBEAT.Request(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    assert HEARTBEAT.Request.decode(request.encode(3), 3) == request
    assert HEARTBEAT.Request.decode(request.encode(2), 2).group_instance_id is None


def test_values_that_a_field_cannot_hold_are_refused() -> None:
    with pytest.raises(OverflowError):
        HEARTBEAT.Request(group_id="g", generation_id=2**31, member_id="m").encode(0)
    with pytest.raises(TypeError, match="groop_id"):
        HEARTBEAT.Request(groop_id="g")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="by name"):
        HEARTBEAT.Request("g")  # type: ignore[call-arg,misc]
    with pytest.raises(ValueError, match="version 5"):
        HEARTBEAT.Request.decode(b"", 5)
    with pytest.raises(TypeError, match="Protocol"):
        JOIN.Request(group_id="g", session_timeout_ms=1, member_id="", protocol_type="",
                     protocols=["range"]).encode(0)  # type: ignore[list-item]  # fmt: skip


def test_a_record_has_one_reference_to_each_of_its_values() -> None:
    values: dict[str, Any] = {name: object() for name in HEARTBEAT.Request.fields}
    reversed_values = dict(reversed(values.items()))
    for given in (values, reversed_values, {"member_id": values["member_id"]}):
        record: Any = HEARTBEAT.Request(**given)
        for name, value in given.items():
            assert getattr(record, name) is value
            held = sys.getrefcount(value)
            delattr(record, name)
            assert sys.getrefcount(value) == held - 1
        with pytest.raises(AttributeError):
            record.encode(4)


def test_records_do_not_share_an_array_that_is_not_given() -> None:
    make: Any = JOIN.Request
    one, other = make(), make()
    one.protocols.append("range")
    assert other.protocols == []


def test_encoded_bytes_are_written_as_they_are() -> None:
    member = JOIN.Member(member_id="m", metadata=b"x")
    answered = JOIN.Response(
        error_code=0, protocol_name="", leader="", member_id="m", members=[member]
    )
    whole = answered.encode(0)
    answered.members = Encoded(whole[-12:])  # type: ignore[assignment]
    assert answered.encode(0) == whole


def test_a_tagged_field_does_not_read_beyond_its_size() -> None:
    """Unknown tags are stepped over; a known one whose bytes end early is refused."""
    topic = messages.create_topics.TopicResult(name="t", error_code=0, error_message=None)
    body = messages.create_topics.Response(topics=[topic]).encode(7)
    assert body[-2:] == b"\0\0"
    known = body[:-2] + b"\1\0\2\x12\x34" + b"\0"
    assert (
        messages.create_topics.Response.decode(known, 7).topics[0].topic_config_error_code == 0x1234
    )
    unknown = body[:-2] + b"\1\x09\2\x12\x34" + b"\0"
    assert messages.create_topics.Response.decode(unknown, 7).topics == [topic]
    short = body[:-2] + b"\1\0\1\x12" + b"\0"
    with pytest.raises(ProtocolError):
        messages.create_topics.Response.decode(short, 7)


def test_every_served_api_has_a_table() -> None:
    tables = [getattr(messages, name) for name in TABLES]
    assert {table.Request.api for table in tables} >= set(SERVED)


def test_a_table_covers_the_served_versions() -> None:
    for name in TABLES:
        request = getattr(messages, name).Request
        served = SERVED.get(request.api)
        if served is not None:
            assert request.versions == (served.min, served.max), name


def test_other_threads_run_while_a_long_array_is_read() -> None:
    """Beside the pages of a console that list all topics."""
    topic = METADATA.MetadataResponseTopic(error_code=0, name="orders")
    body = METADATA.Response(topics=[topic] * 100_000).encode(9)
    turns, over = 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not over.is_set():
            let_go_of_gil()
            turns += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    beside = threading.Thread(target=turn)
    beside.start()
    try:
        before = turns
        METADATA.Response.decode(body, 9)
        between = turns - before
    finally:
        over.set()
        sys.setswitchinterval(interval)
        beside.join()
    assert between >= 20
