"""Client quotas over the protocol: altered, described, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.quota.entities import EVERY, QuotaEntity
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker

ALTER, DESCRIBE = messages.alter_client_quotas, messages.describe_client_quotas
EXACT, DEFAULT, ANY = 0, 1, 2
Names = dict[str, str | None]


def entry(names: Names | list[tuple[str, str | None]], **quotas: float | None) -> Any:
    pairs = names.items() if isinstance(names, dict) else names
    entity = [ALTER.EntityData(entity_type=kind, entity_name=name) for kind, name in pairs]
    ops = [
        ALTER.OpData(key=key, value=value or 0.0, remove=value is None)
        for key, value in quotas.items()
    ]
    return ALTER.EntryData(entity=entity, ops=ops)


def alter(broker: FakeBroker, *entries: Any, validate_only: bool = False) -> list[ErrorCode]:
    request = ALTER.Request(entries=list(entries), validate_only=validate_only)
    answer = broker.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, request.encode(1)).answer
    assert answer is not None
    return [ErrorCode(each.error_code) for each in ALTER.Response.decode(answer, 1).entries]


def describe(
    broker: FakeBroker, *components: tuple[str, int, str | None], strict: bool = False
) -> list[Any]:
    parts = [
        DESCRIBE.ComponentData(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    request = DESCRIBE.Request(components=parts, strict=strict)
    answer = broker.send(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request.encode(1)).answer
    assert answer is not None
    found = DESCRIBE.Response.decode(answer, 1).entries
    return [
        (
            {each.entity_type: each.entity_name for each in one.entity},
            {each.key: each.value for each in one.values},
        )
        for one in found or ()
    ]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def test_a_quota_is_described_until_it_is_removed(broker: FakeBroker) -> None:
    both: Names = {"client-id": "c", "user": "alice"}
    assert alter(broker, entry(both, producer_byte_rate=1024.0, request_percentage=12.5)) == [
        ErrorCode.NONE
    ]
    assert describe(broker) == [(both, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})]
    settings = broker.controller.image.quotas[QuotaEntity("alice", "c")]
    assert settings == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    alter(broker, entry(both, producer_byte_rate=None, consumer_byte_rate=7.0))
    assert describe(broker)[0][1] == {"request_percentage": 12.5, "consumer_byte_rate": 7.0}
    alter(broker, entry(both, request_percentage=None, consumer_byte_rate=None))
    assert describe(broker) == []


def test_filters(broker: FakeBroker) -> None:
    wanted: list[Names] = [
        {"user": "alice"},
        {"user": None},
        {"user": "alice", "client-id": None},
        {"client-id": "c"},
        {"user": "bob", "client-id": "c"},
    ]
    alter(broker, *(entry(names, producer_byte_rate=1.0) for names in wanted))
    alter(broker, entry({"ip": "::ffff:192.0.2.1"}, connection_creation_rate=5.0))

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Names]:
        return sorted((each for each, _ in describe(broker, *components, strict=strict)), key=str)

    assert found(("user", EXACT, "alice")) == sorted([wanted[0], wanted[2]], key=str)
    assert found(("user", EXACT, "alice"), strict=True) == [wanted[0]]
    assert found(("user", DEFAULT, None)) == [wanted[1]]
    assert found(("user", ANY, None), strict=True) == sorted([wanted[0], wanted[1]], key=str)
    assert found(("user", ANY, None), ("client-id", EXACT, "c")) == [wanted[4]]
    assert found(("client-id", ANY, None), strict=True) == [wanted[3]]
    assert found(("user", EXACT, "")) == []
    assert found(("ip", EXACT, "192.0.2.1")) == [{"ip": "192.0.2.1"}]
    assert len(found()) == 6 and found(strict=True) == []


@pytest.mark.parametrize(
    ("names", "quotas"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "::1"}, {"connection_creation_rate": 1.0}),
        ({"ip": "no-such-host.invalid"}, {"connection_creation_rate": 1.0}),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"SCRAM-SHA-256": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"producer_byte_rate": math.inf}),
        ({"user": "a"}, {"producer_byte_rate": math.nan}),
        ({"user": "a"}, {"producer_byte_rate": 2.0**64}),
        ({"ip": "::1"}, {"connection_creation_rate": 1.5}),
        ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}),
    ],
)
def test_wrong_quotas_are_refused(
    broker: FakeBroker, names: Names, quotas: dict[str, float]
) -> None:
    fine = entry({"user": "fine"}, producer_byte_rate=1.0)
    assert alter(broker, entry(names, **quotas), fine) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert [names for names, _ in describe(broker)] == [{"user": "fine"}]


def test_an_entity_is_altered_as_a_whole_or_not_at_all(broker: FakeBroker) -> None:
    wrong = entry({"user": "a"}, producer_byte_rate=1.0, consumer_byte_rate=-1.0)
    assert alter(broker, wrong) == [ErrorCode.INVALID_REQUEST]
    twice = entry({"user": "a"}, producer_byte_rate=1.0)
    twice.ops.append(ALTER.OpData(key="producer_byte_rate", value=2.0, remove=False))
    assert alter(broker, twice) == [ErrorCode.INVALID_REQUEST]
    assert describe(broker) == []


def test_an_entity_that_is_named_twice_has_one_result(broker: FakeBroker) -> None:
    first = entry({"user": "a"}, producer_byte_rate=1.0)
    second = entry({"user": "a"}, producer_byte_rate=2.0)
    assert alter(broker, first, second) == [ErrorCode.INVALID_REQUEST]
    assert describe(broker) == [({"user": "a"}, {"producer_byte_rate": 1.0})]


def test_nothing_is_changed_where_it_is_only_validated(broker: FakeBroker) -> None:
    fine = entry({"user": "a"}, producer_byte_rate=1.0)
    wrong = entry({"user": "b"}, producer_byte_rate=-1.0)
    assert alter(broker, fine, wrong, validate_only=True) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert describe(broker) == []


def test_a_password_is_not_removed_with_a_quota(broker: FakeBroker) -> None:
    image = broker.controller.image.with_users({"a": {"SCRAM-SHA-256": "salt=1"}})
    broker.controller.image = image
    names: Names = {"user": "a"}
    assert alter(broker, entry(names, **{"SCRAM-SHA-256": None})) == [ErrorCode.NONE]
    assert broker.controller.image.users == {"a": {"SCRAM-SHA-256": "salt=1"}}


def test_every_entity_has_the_code_of_a_failure(broker: FakeBroker) -> None:
    def fails(*_: object) -> None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    broker.controller.alter_quotas = fails  # type: ignore[assignment,method-assign]
    entries = (entry({"user": name}, producer_byte_rate=1.0) for name in "ab")
    assert alter(broker, *entries) == [ErrorCode.NOT_CONTROLLER] * 2


def test_the_default_entity_has_no_name(broker: FakeBroker) -> None:
    alter(broker, entry({"user": None, "client-id": None}, consumer_byte_rate=3.0))
    assert set(broker.controller.image.quotas) == {QuotaEntity(EVERY, EVERY)}
    assert describe(broker) == [({"user": None, "client-id": None}, {"consumer_byte_rate": 3.0})]
