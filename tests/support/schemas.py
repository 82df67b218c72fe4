"""Any message of any version by kio's schemas: bytes to its classes, and its classes to bytes.

kio brings the schemas of every message and version as dataclasses, one module for each. kbroker
reads and writes its messages by tables of its own, which tests compare with these. Only the module
of the API and version that is needed is imported: the library costs 54 ms once, a message a few
more.

Reading is done here, over `wire.Reader`, from a plan made once for each class, and not by kio's
own reader: kio 0.6.5 sets aside memory for as many items as an array *claims* to have, so twenty
hostile bytes make it ask for gigabytes and the process ends. kio's reader stays the oracle in the
tests, where it reads what we write. Writing is kio's.

The plans and writers are cached per class; filling a cache twice in a race is harmless, so there is
no lock. Any thread may call.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import sys
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType, NoneType, UnionType
from typing import Any, Final, Protocol, get_args, get_origin

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey

Read = Callable[[Reader], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NO_DEFAULT: Final = dataclasses.MISSING
NO_TIME: Final = datetime.timedelta(0)


class RequestBytes(Protocol):
    """What is needed of a request to decode it."""

    @property
    def api_key(self) -> int: ...

    @property
    def api_version(self) -> int: ...

    @property
    def body(self) -> bytes: ...


def request_module(api_key: int, version: int) -> ModuleType:
    """kio's module with this version's request and the structures inside it."""
    return _module(ApiKey(api_key), version, "request")


def response_module(api_key: int, version: int) -> ModuleType:
    """kio's module with this version's response and the structures inside it."""
    return _module(ApiKey(api_key), version, "response")


@cache
def load() -> ModuleType:
    """kio's writer, with all that comes with its first import.

    Where hypothesis can be imported, kio registers a strategy for each of its types, which costs
    two seconds of CPU and 200 MB at its peak. So hypothesis cannot be imported meanwhile.
    """
    hidden = "hypothesis" not in sys.modules
    if hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("kio.serial")
    finally:
        if hidden and sys.modules.get("hypothesis") is None:
            sys.modules.pop("hypothesis", None)


@cache
def _module(api_key: ApiKey, version: int, kind: str) -> ModuleType:
    load()
    return importlib.import_module(f"kio.schema.{api_key.name.lower()}.v{version}.{kind}")


def decode(request: RequestBytes) -> Any:
    """The message in a request's body; `ProtocolError` if the bytes are not one."""
    module = request_module(request.api_key, request.api_version)
    return decode_as(getattr(module, f"{ApiKey(request.api_key).label}Request"), request.body)


def decode_as(message_class: Any, body: bytes) -> Any:
    """The message of a known class: a request, or an answer that another broker sent."""
    reader = Reader(body, flexible=message_class.__flexible__)
    try:
        return _read_entity(message_class)(reader)
    except (OverflowError, ValueError) as error:
        # A number that fits its bytes and not its meaning: a date in the year 300 million.
        raise ProtocolError(str(error)) from error


def encode(entity: Any) -> bytes:
    """The bytes of a response body, without its header.

    KafkaError where it holds a text that is too long for a response: see `outside_text`.
    """
    out = io.BytesIO()
    entity_class: Any = type(entity)
    write = _writer(entity_class)
    from kio.serial.errors import OutOfBoundValue  # there since `load`, which imports it with care

    try:
        write(out, entity)
    except OutOfBoundValue as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return out.getvalue()


@cache
def _writer(entity_class: Any) -> Callable[[io.BytesIO, Any], None]:
    write: Callable[[io.BytesIO, Any], None] = load().entity_writer(entity_class)
    return write


@cache
def _read_entity(entity_class: Any) -> Read:
    """How to read one structure: its fields in order, then what its tags may hold."""
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    absent: dict[str, Any] = {}
    for field in dataclasses.fields(entity_class):
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append((field.name, _read_field(field, nullable=None)))
            continue
        # A tagged field is optional by being left out, so its value on the wire is never null.
        tagged[tag] = (field.name, _read_field(field, nullable=False))
        absent[field.name] = _default(field)

    def read(reader: Reader) -> Any:
        values = dict(absent)
        for name, read_field in plain:
            values[name] = read_field(reader)
        reader.tags({tag: partial(_read_tag, values, *known) for tag, known in tagged.items()})
        return entity_class(**values)

    return read


def _read_tag(values: dict[str, Any], name: str, read_field: Read, reader: Reader) -> None:
    values[name] = read_field(reader)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not _NO_DEFAULT:
        return field.default
    if field.default_factory is not _NO_DEFAULT:
        return field.default_factory()
    inner, optional = _strip_optional(field.type)
    if optional:
        return None
    return () if get_origin(inner) is tuple else _ZERO.get(field.metadata.get("kafka_type", ""), 0)


_ZERO: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "timedelta_i32": NO_TIME,
    "timedelta_i64": NO_TIME,
}


def _strip_optional(annotation: Any) -> tuple[Any, bool]:
    """`X | None` as (X, True), anything else as itself."""
    if isinstance(annotation, UnionType) or get_origin(annotation) is UnionType:
        inner = [arg for arg in get_args(annotation) if arg is not NoneType]
        if len(inner) == 1:
            return inner[0], len(get_args(annotation)) == 2
    return annotation, False


def _read_field(field: dataclasses.Field[Any], nullable: bool | None) -> Read:
    annotation, optional = _strip_optional(field.type)
    if nullable is not None:
        optional = nullable
    kafka_type = field.metadata.get("kafka_type")
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        read_item = (
            _read_primitive(kafka_type, optional=False)
            if kafka_type is not None
            else _read_entity(item)
        )
        return partial(_read_array, read_item, optional)
    if kafka_type is not None:
        return _read_primitive(kafka_type, optional=optional)
    read_entity = _read_entity(annotation)
    return partial(_read_nullable_entity, read_entity) if optional else read_entity


def _read_array(read_item: Read, optional: bool, reader: Reader) -> tuple[Any, ...] | None:
    count = reader.nullable_array() if optional else reader.array()
    if count is None:
        return None
    return tuple([read_item(reader) for _ in range(count)])


def _read_nullable_entity(read_entity: Read, reader: Reader) -> Any:
    # KIP-893: a byte before the structure, -1 for null.
    return None if reader.int8() < 0 else read_entity(reader)


def _read_bytes(reader: Reader) -> bytes:
    value = reader.nullable_bytes()
    if value is None:
        raise ProtocolError("null for bytes that may not be null")
    return value


def _read_error_code(reader: Reader) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(reader.int16())


def _read_timedelta_i32(reader: Reader) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=reader.int32())


def _read_timedelta_i64(reader: Reader) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=reader.int64())


def _read_datetime(reader: Reader) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=reader.int64())


def _read_nullable_datetime(reader: Reader) -> datetime.datetime | None:
    milliseconds = reader.int64()
    return None if milliseconds == -1 else _EPOCH + datetime.timedelta(milliseconds=milliseconds)


_PRIMITIVES: Final[dict[str, Read]] = {
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uint16": Reader.uint16,
    "uint32": Reader.uint32,
    "float64": Reader.float64,
    "bool": Reader.boolean,
    "string": Reader.string,
    "bytes": _read_bytes,
    "records": _read_bytes,
    "uuid": Reader.uuid,
    "error_code": _read_error_code,
    "timedelta_i32": _read_timedelta_i32,
    "timedelta_i64": _read_timedelta_i64,
    "datetime_i64": _read_datetime,
}
_NULLABLE_PRIMITIVES: Final[dict[str, Read]] = {
    "string": Reader.nullable_string,
    "bytes": Reader.nullable_bytes,
    "records": Reader.nullable_bytes,
    "uuid": Reader.uuid,
    "datetime_i64": _read_nullable_datetime,
}


def _read_primitive(kafka_type: str, *, optional: bool) -> Read:
    return (_NULLABLE_PRIMITIVES if optional else _PRIMITIVES)[kafka_type]
