"""What the quota controller_mutation_rate counts: a client that owes asks for changes.

Each request comes on a connection of its own, since one that is throttled is not read for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases.acls import create as create_acls
from tests.parity.cases.acls import delete as delete_acls
from tests.parity.cases.acls import rule
from tests.parity.cases.alter_client_quotas import alter, change, settle
from tests.parity.cases.delegation_tokens import create, expire, renew
from tests.parity.requests import build
from tests.parity.sides import SUPER_USER, USERS
from tests.parity.talk import Talk

RATE: Final = 0.01
PARTITIONS: Final = 5

book = Book(setup=USERS)
cases = book.cases


def topics(talk: Talk, name: str) -> Any:
    return build(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[{"name": talk.name(name), "num_partitions": PARTITIONS, "replication_factor": 1}],
        timeout=30_000,
    )


def new_user(talk: Talk) -> Any:
    return build(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        upsertions=[
            {
                "name": talk.name("user"),
                "mechanism": 1,
                "iterations": 4096,
                "salt": b"salt",
                "salted_password": b"p" * 32,
            }
        ],
    )


def new_setting(talk: Talk) -> Any:
    entry = {"name": "retention.ms", "config_operation": 0, "value": "1000000"}
    return build(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[{"resource_type": 2, "resource_name": talk.name("first"), "configs": [entry]}],
    )


REQUESTS: Final[dict[str, Callable[[Talk], Any]]] = {
    "topics": lambda talk: topics(talk, "second"),
    "a token": lambda talk: create(3),
    "a token's renewal": lambda talk: renew(2, b"none"),
    "a token's end": lambda talk: expire(2, b"none"),
    "an ACL": lambda talk: create_acls(3, rule((2, 3, 3, 3), talk.name("t"), "User:cat")),
    "an ACL's end": lambda talk: delete_acls(3, nothing(talk)),
    "a user": new_user,
    "a setting": new_setting,
    "a quota": lambda talk: alter(1, change([("user", talk.name("user"))], [])),
}


def nothing(talk: Talk) -> dict[str, Any]:
    """A filter that fits no ACL."""
    return {
        "resource_type_filter": 2,
        "resource_name_filter": talk.name("none"),
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def in_words(data: Any) -> Any:
    """How long the client is to wait, if it has to, and whether a topic was refused."""
    waits = "a while" if data["throttle_time"] else 0
    codes = [each["error_code"] for each in data.get("topics", ())]
    return {"throttle_time": waits, "error_code": data.get("error_code"), "topics": codes}


@book.case("counted", over=REQUESTS)
def counted(talk: Talk, request: Callable[[Talk], Any]) -> None:
    client = talk.name("client")
    entity: list[tuple[str, str | None]] = [("user", SUPER_USER), ("client-id", client)]
    talk.quietly(alter(1, change(entity, [("controller_mutation_rate", RATE)])))
    settle(talk)
    talk.connect().ask(topics(talk, "first"), client_id=client, view=in_words)
    talk.connect().ask(request(talk), client_id=client, view=in_words)
