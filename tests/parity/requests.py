"""Requests: kio's messages from plain values, raw bytes, and how either becomes a frame.

`build` makes a request of any version from plain values: nested structures are mappings, times are
milliseconds. A field that this version does not have is left out, one that no version has is a
mistake; a field that is not given gets the schema's default, or zero (null where it may be null).
`Raw` is for bodies that kio would not write, `Bytes` for frames that are no request at all.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import pkgutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType, NoneType
from typing import Any, get_args, get_origin

from kio.serial import entity_writer

from kbroker.protocol.versions import request_header_version
from kbroker.protocol.wire import encode_unsigned_varint
from kbroker.types import ApiKey

Tags = Mapping[int, bytes]
NO_TAGS: Tags = {}


@dataclass(frozen=True)
class Raw:
    """A request whose body is these bytes. `key` may be a number that no API has."""

    key: int
    version: int
    body: bytes = b""


@dataclass(frozen=True)
class Bytes:
    """The bytes of a frame, header included; the size in front is added, unless it is given."""

    payload: bytes
    announced: int | None = None


Request = Any  # an entity of kio, Raw or Bytes


def build(key: ApiKey, version: int, /, **fields: Any) -> Any:
    """kio's request of this API and version."""
    module = _module(key, version)
    return _entity(key, getattr(module, f"{key.label}Request"), fields)


@cache
def _module(key: ApiKey, version: int) -> ModuleType:
    return importlib.import_module(f"kio.schema.{key.name.lower()}.v{version}.request")


@cache
def _fields_of_any_version(key: ApiKey, structure: str) -> frozenset[str]:
    package = importlib.import_module(f"kio.schema.{key.name.lower()}")
    versions = [int(m.name[1:]) for m in pkgutil.iter_modules(package.__path__) if m.ispkg]
    classes = [getattr(_module(key, version), structure, None) for version in versions]
    return frozenset(f.name for c in classes if c is not None for f in dataclasses.fields(c))


def _entity(key: ApiKey, entity_class: Any, given: Mapping[str, Any]) -> Any:
    unknown = given.keys() - _fields_of_any_version(key, entity_class.__name__)
    if unknown:
        raise TypeError(f"no version of {entity_class.__name__} has {sorted(unknown)}")
    values = {}
    for field in dataclasses.fields(entity_class):
        if field.name in given:
            values[field.name] = _value(key, field.type, given[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _zero(field)
    return entity_class(**values)


def _value(key: ApiKey, annotation: Any, value: Any) -> Any:
    if value is None:
        return None
    inner = [a for a in get_args(annotation) if a is not NoneType]
    if get_origin(annotation) is tuple:
        return tuple(_value(key, inner[0], item) for item in value)
    if NoneType in get_args(annotation):
        return _value(key, inner[0], value)
    if isinstance(value, Mapping):
        return _entity(key, annotation, value)
    if isinstance(annotation, type) and issubclass(annotation, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


_ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "uuid": None,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
}


def _zero(field: dataclasses.Field[Any]) -> Any:
    if NoneType in get_args(field.type):
        return None
    if get_origin(field.type) is tuple:
        return ()
    return _ZEROS.get(field.metadata.get("kafka_type", ""), 0)


# --- frames -----------------------------------------------------------------------------------


def body_of(entity: Any) -> bytes:
    """A request's bytes without its header."""
    if isinstance(entity, Raw):
        return entity.body
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def key_and_version(request: Any) -> tuple[int, int]:
    if isinstance(request, Raw):
        return request.key, request.version
    return int(request.__api_key__), int(request.__version__)


def raw(entity: Any, body: bytes | None = None, *, version: int | None = None) -> Raw:
    """A request of kio's as Raw, with another body or in another version's name."""
    key, own = key_and_version(entity)
    return Raw(key, own if version is None else version, body_of(entity) if body is None else body)


def tagged(entity: Any, tags: Tags) -> Raw:
    """A flexible request with these fields in its outermost tag section, which must be empty."""
    body = body_of(entity)
    if body[-1:] != b"\x00":
        raise ValueError("the message has tagged fields already")
    return raw(entity, body[:-1] + tag_section(tags))


def tag_section(tags: Tags) -> bytes:
    parts = [encode_unsigned_varint(len(tags))]
    for tag, value in sorted(tags.items()):
        parts += [encode_unsigned_varint(tag), encode_unsigned_varint(len(value)), value]
    return b"".join(parts)


def header(
    key: int,
    version: int,
    correlation_id: int,
    client_id: str | bytes | None = "parity",
    tags: Tags = NO_TAGS,
) -> bytes:
    head = struct.pack(">hhi", key, version, correlation_id)
    if client_id is None:
        head += struct.pack(">h", -1)
    else:
        text = client_id.encode() if isinstance(client_id, str) else client_id
        head += struct.pack(">h", len(text)) + text
    if request_header_version(key, version) >= 2:
        head += tag_section(tags)
    return head


def frame(payload: bytes, announced: int | None = None) -> bytes:
    return struct.pack(">i", len(payload) if announced is None else announced) + payload
