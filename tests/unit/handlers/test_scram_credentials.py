"""Users' SCRAM credentials over the protocol: altered, described, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.limits import SCRAM_FIELD_BYTES_MAX, USER_NAME_BYTES_MAX
from kbroker.metadata.users import ImageUsers
from kbroker.protocol import messages
from kbroker.security.fake_credential import JAVA_TEXT, salt_form
from kbroker.security.scram import ScramMechanism
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_server import ScramServer
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker

ALTER, DESCRIBE = messages.alter_user_scram_credentials, messages.describe_user_scram_credentials
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def upsertion(name: str, password: str = "pw", **fields: Any) -> Any:
    """As a client of Kafka makes it, which sends no password."""
    mechanism = fields.pop("of", SHA_256)
    values = {
        "mechanism": mechanism.code,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": mechanism.salted(password, b"salt", fields.get("iterations", 4096)),
        **fields,
    }
    return ALTER.ScramCredentialUpsertion(name=name, **values)


def deletion(name: str, mechanism: int = 1) -> Any:
    return ALTER.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(broker: FakeBroker, *items: Any) -> dict[str, ErrorCode]:
    deletions = [each for each in items if isinstance(each, ALTER.ScramCredentialDeletion)]
    upsertions = [each for each in items if each not in deletions]
    request = ALTER.Request(deletions=deletions, upsertions=upsertions)
    answer = broker.send(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request.encode(0)).answer
    assert answer is not None
    results = ALTER.Response.decode(answer, 0).results
    assert len({each.user for each in results}) == len(results)
    return {each.user: ErrorCode(each.error_code) for each in results}


def describe(broker: FakeBroker, *names: str, every: bool = False) -> dict[str, Any]:
    users = None if every else [DESCRIBE.UserName(name=name) for name in names]
    request = DESCRIBE.Request(users=users)
    answer = broker.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request.encode(0)).answer
    assert answer is not None
    return {
        each.user: ErrorCode(each.error_code)
        if each.error_code
        else [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in DESCRIBE.Response.decode(answer, 0).results
    }


def logs_in(broker: FakeBroker, name: str, password: str, mechanism: ScramMechanism) -> bool:
    users = ImageUsers(lambda: broker.controller.image, b"secret")
    server, client = ScramServer(mechanism, users), ScramClient(mechanism, name, password)
    try:
        client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    except Exception:
        return False
    return server.login is not None and server.login.name == name


def test_a_user_that_was_altered_logs_in() -> None:
    broker = FakeBroker()
    assert alter(broker, upsertion("alice", "hers"), upsertion("bob", of=SHA_512)) == {
        "alice": ErrorCode.NONE,
        "bob": ErrorCode.NONE,
    }
    assert logs_in(broker, "alice", "hers", SHA_256)
    assert not logs_in(broker, "alice", "his", SHA_256)
    assert not logs_in(broker, "alice", "hers", SHA_512)
    assert logs_in(broker, "bob", "pw", SHA_512)
    assert alter(broker, deletion("alice")) == {"alice": ErrorCode.NONE}
    assert not logs_in(broker, "alice", "hers", SHA_256)


def test_describing() -> None:
    broker = FakeBroker()
    alter(broker, upsertion("bob"), upsertion("alice", iterations=8192))
    alter(broker, upsertion("bob", of=SHA_512))
    both = {"alice": [(1, 8192)], "bob": [(1, 4096), (2, 4096)]}
    assert describe(broker) == describe(broker, every=True) == both
    assert list(describe(broker)) == ["alice", "bob"]
    assert describe(broker, "bob", "eve", "alice", "alice") == {
        "bob": both["bob"],
        "eve": ErrorCode.RESOURCE_NOT_FOUND,
        "alice": ErrorCode.DUPLICATE_RESOURCE,
    }


def test_users_without_passwords_are_not_described() -> None:
    broker = FakeBroker()
    broker.controller.image = broker.controller.image.with_users(
        {"alice": {"producer_byte_rate": "1"}, "bob": {"SCRAM-SHA-256": "x"}, "": {"y": "z"}}
    )
    assert describe(broker) == {}
    assert describe(broker, "alice", "bob", "") == dict.fromkeys(
        ["alice", "bob", ""], ErrorCode.RESOURCE_NOT_FOUND
    )
    assert not logs_in(broker, "bob", "x", SHA_256)


UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (upsertion(""), UNACCEPTABLE),
        (deletion(""), UNACCEPTABLE),
        (deletion("", 9), UNACCEPTABLE),
        (upsertion("a" * (USER_NAME_BYTES_MAX + 1)), UNACCEPTABLE),
        (upsertion("a", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", mechanism=3, iterations=1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("a", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", iterations=4095), UNACCEPTABLE),
        (upsertion("a", iterations=16385), UNACCEPTABLE),
        (upsertion("a", salt=b""), UNACCEPTABLE),
        (upsertion("a", salted_password=b""), UNACCEPTABLE),
        (upsertion("a", salt=b"x" * (SCRAM_FIELD_BYTES_MAX + 1)), UNACCEPTABLE),
        (deletion("a"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("both", 2), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_one_that_is_refused_does_not_hurt_the_others(item: Any, code: ErrorCode) -> None:
    broker = FakeBroker()
    alter(broker, upsertion("both"))
    before = broker.controller.image.users
    name = item.name
    assert alter(broker, item, upsertion("other")) == {name: code, "other": ErrorCode.NONE}
    assert {k: v for k, v in broker.controller.image.users.items() if k != "other"} == before


@pytest.mark.parametrize(
    "items",
    [
        (upsertion("a"), upsertion("a")),
        (upsertion("a"), upsertion("a", of=SHA_512)),
        (deletion("a", 1), deletion("a", 2)),
        (deletion("a"), upsertion("a")),
    ],
)
def test_a_user_that_is_named_twice_is_not_altered(items: tuple[Any, ...]) -> None:
    broker = FakeBroker()
    alter(broker, upsertion("a"))
    before = broker.controller.image.users
    assert alter(broker, *items, upsertion("b")) == {
        "a": ErrorCode.DUPLICATE_RESOURCE,
        "b": ErrorCode.NONE,
    }
    assert broker.controller.image.users["a"] == before["a"]


def test_a_name_that_is_not_there_has_the_usual_iterations() -> None:
    broker = FakeBroker()
    alter(broker, *(upsertion(name, iterations=8192) for name in ("a", "b")), upsertion("c"))
    users = ImageUsers(lambda: broker.controller.image, b"secret")
    assert users.fake(SHA_256, "eve").iterations == 8192
    assert users.fake(SHA_512, "eve").iterations == 4096
    assert users.fake(SHA_256, "eve") == users.fake(SHA_256, "eve")
    other = ImageUsers(lambda: broker.controller.image, b"other")
    assert users.fake(SHA_256, "eve").salt != other.fake(SHA_256, "eve").salt
    alter(broker, *(upsertion(name, iterations=5000) for name in ("d", "e", "f")))
    assert users.fake(SHA_256, "eve").iterations == 5000
    assert users.token(SHA_256, "x") is None


@pytest.mark.parametrize(
    ("salts", "form"),
    [
        ([b"1kz1q5ux0m9o5ysjqz9p8wnr0h", b"9wd3hk2l0zq0ce7mzc1r3u5ta"], JAVA_TEXT),
        ([b"\x01" * 64, b"\xff" * 64], 64),
        ([b"\x01" * 20, b"\x01" * 20, b"1kz1q5ux0m9o5ysjqz9p8wnr0h"], 20),
    ],
)
def test_a_name_that_is_not_there_has_a_salt_of_the_usual_form(
    salts: list[bytes], form: int
) -> None:
    """It is the first that a client sees: who made the others shows in it."""
    broker = FakeBroker()
    alter(broker, *(upsertion(f"u{place}", salt=salt) for place, salt in enumerate(salts)))
    users = ImageUsers(lambda: broker.controller.image, b"secret")
    fakes = {users.fake(SHA_256, f"eve{number}").salt for number in range(50)}
    assert {salt_form(each) for each in fakes} == {form}
    assert len(fakes) == 50


def test_a_controller_that_fails_is_answered_for_every_user() -> None:
    broker = FakeBroker()

    def fails(*_: Any) -> None:
        raise RuntimeError

    broker.controller.alter_users = fails  # type: ignore[assignment,method-assign]
    names = dict.fromkeys(["a", "b"], ErrorCode.UNKNOWN_SERVER_ERROR)
    assert alter(broker, upsertion("a"), deletion("b"), deletion("b")) == names
