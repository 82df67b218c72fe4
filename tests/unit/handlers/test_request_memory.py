"""The memory that the registry's row says a decoded request takes, against what it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kbroker.handlers import envelope
from kbroker.handlers.call import Call
from kbroker.handlers.registry import REGISTRY, Api
from kbroker.protocol._messages import Kind
from kbroker.protocol.messages.table import Record
from kbroker.security.session import ANONYMOUS, Session
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeRequest

ITEMS: Final = 1_000
# A body with fewer bytes is all object and no item.
BODY_BYTES_MIN: Final = 990

ENVELOPE: Final = next(api for api in REGISTRY.apis if api.key is ApiKey.ENVELOPE)
READ_BY_TABLE: Final = [api for api in REGISTRY.apis if api.call is not None and api != ENVELOPE]
FORWARDED: Final = [api for api in REGISTRY.apis if api.for_controller is not None]
SESSION: Final = Session(ANONYMOUS, "client", "PLAINTEXT", "192.0.2.7")


def paths(record: type[Record], version: int, outer: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """The way to every array of a message."""
    for name, field in record.fields.items():
        if not field.since <= version <= field.until:
            continue
        if field.is_array:
            yield [*outer, name]
        if field.record is not None:
            yield from paths(field.record, version, (*outer, name))


def dense(record: type[Record], version: int, path: list[str]) -> Any:
    """A record with as many items as possible to a byte in the array at the end of the path."""
    values: dict[str, Any] = {}
    for name, field in record.fields.items():
        if field.is_array:
            values[name] = []
        elif field.kind is Kind.STRING:
            values[name] = ""
        elif field.record is not None:
            values[name] = None if version >= field.null else dense(field.record, version, [])
    if path:
        inner = record.fields[path[0]].record
        is_text = record.fields[path[0]].kind is Kind.STRING
        if inner is not None and not record.fields[path[0]].is_array:
            values[path[0]] = dense(inner, version, path[1:])
            return record(**values)
        values[path[0]] = [
            ("" if is_text else 100) if inner is None else dense(inner, version, path[1:])
            for _ in range(ITEMS if len(path) == 1 else 1)
        ]
    return record(**values)


def bodies(api: Api) -> Iterator[tuple[int, bytes]]:
    """With their versions."""
    request = api.table.Request
    for version in range(api.min_version, api.max_version + 1):
        for path in paths(request, version):
            body = dense(request, version, path).encode(version)
            if len(body) >= BODY_BYTES_MIN:
                yield version, body


def factor(body: bytes, read: Callable[[bytes], object]) -> float:
    read(body)  # the version's plan is made
    tracemalloc.start()
    try:
        kept = read(body)
        return tracemalloc.get_traced_memory()[1] / len(body)
    finally:
        del kept
        tracemalloc.stop()


def factors(api: Api) -> Iterator[float]:
    for version, body in bodies(api):
        yield factor(body, lambda body, version=version: api.table.Request.decode(body, version))


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in READ_BY_TABLE])
def test_a_decoded_request_takes_no_more_memory_than_its_row_says(api: Api) -> None:
    most = max(factors(api), default=0)
    assert most <= api.memory_factor
    # Nor much less: an estimate that is too large would refuse requests for nothing.
    assert most * 2 >= api.memory_factor or api.memory_factor == 10


def read_inside(body: bytes) -> object:
    """A request that was forwarded, as the controller reads it."""
    request: Any = FakeRequest(ApiKey.ENVELOPE, envelope.VERSION, body)
    call: Any = Call(request, ENVELOPE.table)
    inside = envelope.Forwarded(call)
    (api,) = (each for each in FORWARDED if each.key == inside.api_key)
    return call, inside, api.table.Request.decode(inside.body, inside.api_version)


def test_an_envelope_takes_the_memory_of_the_request_inside() -> None:
    most = max(
        factor(envelope.sealed(FakeRequest(api.key, version, body), SESSION), read_inside)
        for api in FORWARDED
        for version, body in bodies(api)
    )
    assert most <= ENVELOPE.memory_factor <= most * 2
