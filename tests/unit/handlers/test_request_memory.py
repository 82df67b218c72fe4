"""The memory that the registry's row says a decoded request takes, against what it takes; and the
room that a large one waits for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from kbroker import limits
from kbroker.errors import ErrorCode
from kbroker.handlers import decoded_memory, envelope
from kbroker.handlers.call import Call
from kbroker.handlers.registry import REGISTRY, Api, Registry
from kbroker.protocol import messages
from kbroker.protocol._messages import Kind
from kbroker.protocol.messages.table import Record
from kbroker.security.session import ANONYMOUS, Session
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, FakeRequest
from tests.unit.handlers.test_envelope import a_broker

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


class Room:
    """In place of the budget."""

    def __init__(self) -> None:
        self.held_bytes: list[int] = []
        self.holds = 0

    @contextmanager
    def held(self, wanted_bytes: int) -> Iterator[int]:
        assert not self.holds, "it waits for itself"
        self.held_bytes.append(wanted_bytes)
        self.holds += 1
        try:
            yield wanted_bytes
        finally:
            self.holds -= 1


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    room = Room()
    monkeypatch.setattr(decoded_memory, "DECODED", room)
    monkeypatch.setattr(limits, "DECODED_SMALL_BYTES_MAX", 1_000)
    return room


def test_a_large_request_holds_room_until_it_is_handled(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeBroker()
    key = ApiKey.DESCRIBE_GROUPS
    api = REGISTRY.get(key)
    assert api is not None
    for count, holds in ((1, 0), (50, 1)):
        asked = messages.describe_groups.Request(groups=["group"] * count).encode(5)

        def handle(services: Any, call: Any, holds: int = holds) -> None:
            assert room.holds == holds
            call.fail(ErrorCode.NOT_COORDINATOR)

        request = FakeRequest(key, 5, asked)
        Registry([api._replace(call=handle)]).dispatch(broker.services, request)
        assert request.answer
    assert room.held_bytes == [api.memory_factor * len(asked)]
    broker.send(key, 5, b"\xff" * 200)  # it cannot be read
    assert len(room.held_bytes) == 2 and not room.holds


def test_an_envelope_holds_room_for_the_request_inside(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DECODED_SMALL_BYTES_MAX", 0)
    body = messages.unregister_broker.Request(broker_id=99).encode(0)
    sealed = envelope.sealed(FakeRequest(ApiKey.UNREGISTER_BROKER, 0, body), SESSION)
    assert a_broker(active=True).send(ApiKey.ENVELOPE, envelope.VERSION, sealed).answer
    assert room.held_bytes == [ENVELOPE.memory_factor * len(sealed)]
