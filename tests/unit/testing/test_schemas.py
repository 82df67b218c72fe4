"""The schema-driven reader, against kio's own writer and reader as the oracle.

Every version of every request that kio knows is filled with values made from a seed, written by
kio, and must come back equal; the same bytes cut short or damaged must give a `ProtocolError` and
nothing else, whatever they claim.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import re
import struct
import uuid
from types import NoneType, SimpleNamespace
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey
from tests.support import schemas
from tests.support.source_tree import ROOT

REQUESTS = [
    (key, version)
    for key, name in sorted(api_key_map.items())
    for version, kinds in sorted(schema_name_map[name].items())
    if EntityType.request in kinds
]
IMPORT_OF_KIO = re.compile(r"^\s*(?:from|import) kio\b|import_module\(f?\"kio\b", re.M)
SERVED_REQUESTS = [(key, v) for key, v in REQUESTS if key in SERVED and v in SERVED[ApiKey(key)]]


def request_class(key: int, version: int) -> type[Any]:
    return getattr(schemas.request_module(key, version), f"{ApiKey(key).label}Request")


PRIMITIVES = {
    "int8": lambda r: r.randrange(-128, 128),
    "int16": lambda r: r.randrange(-(2**15), 2**15),
    "int32": lambda r: r.randrange(-(2**31), 2**31),
    "int64": lambda r: r.randrange(-(2**63), 2**63),
    "uint16": lambda r: r.randrange(2**16),
    "uint32": lambda r: r.randrange(2**32),
    "float64": lambda r: r.random(),
    "bool": lambda r: r.random() < 0.5,
    "string": lambda r: "".join(r.choice("aé.本") for _ in range(r.choice((0, 1, 7, 130)))),
    "bytes": lambda r: r.randbytes(r.choice((0, 1, 7, 130))),
    "records": lambda r: r.randbytes(r.choice((0, 1, 7, 130))),
    "uuid": lambda r: r.choice((None, uuid.UUID(int=r.randrange(1, 2**128)))),
    "error_code": lambda r: ErrorCode(r.choice((-1, 0, 3, 87))),
    "datetime_i64": lambda r: datetime.datetime.fromtimestamp(r.randrange(2**31), tz=datetime.UTC),
    "timedelta_i32": lambda r: datetime.timedelta(milliseconds=r.randrange(-(2**31), 2**31)),
    "timedelta_i64": lambda r: datetime.timedelta(milliseconds=r.randrange(0, 2**40)),
}


def make(entity_class: type[Any], rng: random.Random) -> Any:
    """One instance with a value in every field."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(entity_class):
        args = get_args(field.type)
        optional = NoneType in args
        inner = next((a for a in args if a is not NoneType), None) if optional else field.type
        kafka_type = field.metadata.get("kafka_type")
        nullable = optional and "tag" not in field.metadata
        if nullable and kafka_type != "uuid" and rng.random() < 0.3:
            values[field.name] = None
        elif get_origin(inner) is tuple:
            item = get_args(inner)[0]
            values[field.name] = tuple(
                PRIMITIVES[kafka_type](rng) if kafka_type else make(item, rng)
                for _ in range(rng.choice((0, 1, 3)))
            )
        else:
            values[field.name] = PRIMITIVES[kafka_type](rng) if kafka_type else make(inner, rng)
    return entity_class(**values)


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def as_request(key: int, version: int, body: bytes) -> Any:
    return SimpleNamespace(api_key=key, api_version=version, body=body)


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_every_request_of_every_version_comes_back_equal(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    for _ in range(5):
        entity = make(request_class(key, version), rng)
        body = written(entity)
        oracle, size = entity_reader(type(entity))(body, 0)
        assert size == len(body)
        assert schemas.decode(as_request(key, version, body)) == oracle == entity
        assert schemas.encode(entity) == body


@pytest.mark.parametrize(("key", "version"), SERVED_REQUESTS)
def test_a_request_cut_anywhere_is_malformed(key: int, version: int) -> None:
    rng = random.Random(7)
    body = written(make(request_class(key, version), rng))
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            schemas.decode(as_request(key, version, body[:size]))


@settings(max_examples=1_000, deadline=None)
@given(which=st.sampled_from(SERVED_REQUESTS), data=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(which: tuple[int, int], data: bytes) -> None:
    try:
        schemas.decode(as_request(*which, data))
    except ProtocolError:
        pass


def test_an_array_that_claims_more_than_there_is_takes_no_memory() -> None:
    for claim in (2**31 - 1, 50_000_000, 101):
        with pytest.raises(ProtocolError):
            schemas.decode(
                as_request(ApiKey.CREATE_TOPICS, 2, struct.pack(">i", claim) + b"\0" * 100)
            )


def test_unknown_tagged_fields_are_skipped() -> None:
    body = b"\x01\x01\x01\x02" + b"\x05\x01a" + b"\x81\x01\x00"
    entity = schemas.decode(as_request(ApiKey.DESCRIBE_CLUSTER, 2, body))
    assert entity.include_cluster_authorized_operations
    assert entity.endpoint_type == 1
    assert entity.include_fenced_brokers


def test_bytes_after_the_last_field_are_left_alone() -> None:
    assert schemas.decode(as_request(ApiKey.DESCRIBE_CLUSTER, 0, b"\x01\x00rest"))


def test_no_module_of_the_package_names_kio() -> None:
    """The package reads and writes its messages itself, in injected errors too."""
    code = [path for end in ("py", "pyx") for path in (ROOT / "kbroker").rglob(f"*.{end}")]
    naming = {path.relative_to(ROOT) for path in code if IMPORT_OF_KIO.search(path.read_text())}
    assert not naming
