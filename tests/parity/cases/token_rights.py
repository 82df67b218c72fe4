"""Rights to delegation tokens (38-41): none, each, and one that is denied.

bob asks, from a host of the case's own, which the ACLs name; cat owns the token.
"""

from __future__ import annotations

from typing import Final

from tests.parity.book import Book
from tests.parity.cases._rights import acls_of
from tests.parity.cases.delegation_tokens import (
    OWNED,
    RENEWED,
    VERSIONS,
    create,
    describe,
    expire,
    renew,
)
from tests.parity.cases.tokens_of_users import HOUR_MS, Made, made_by, only, since, without_ids
from tests.parity.sides import USERS, login_of
from tests.parity.talk import Connection, Talk

book = Book(setup=USERS)
cases = book.cases

CAT: Final = ("User", "cat")
CREATES: Final = "CREATE_TOKENS U cat"
CREATORS: Final = (
    "",
    CREATES,
    "CREATE_TOKENS U bob",
    "DESCRIBE_TOKENS U cat",
    "ALL U cat",
    f"{CREATES}, DENY CREATE_TOKENS U cat",
    f"{CREATES}, DENY ALL U cat",
    f"{CREATES}, DENY DESCRIBE_TOKENS U cat",
)
SEES: Final = "DESCRIBE D id"
SEES_ALL: Final = "DESCRIBE_TOKENS U cat"
SEERS: Final = (
    "",
    SEES,
    SEES_ALL,
    "CREATE_TOKENS U cat",
    "DESCRIBE_TOKENS U bob",
    f"{SEES}, DENY DESCRIBE D id",
    f"{SEES_ALL}, DENY DESCRIBE_TOKENS U cat",
    f"{SEES_ALL}, DENY DESCRIBE D id",
    f"{SEES}, DENY DESCRIBE_TOKENS U cat",
)


def bob(talk: Talk, words: str, token_id: str = "") -> Connection:
    """With these rights."""
    known = {"cat": "User:cat", "bob": "User:bob", "id": token_id}
    talk.add_acls(*acls_of(talk, words, known), principal="User:bob")
    return talk.connect(talk.host, login=login_of("bob"))


def token_of_cat(talk: Talk) -> Made:
    cat = talk.connect(login=login_of("cat"))
    return made_by(cat, talk, create(3), record=False)


@book.case(
    "create for an owner", versions=OWNED, over={each or "nothing": each for each in CREATORS}
)
def created(talk: Talk, version: int, words: str) -> None:
    bob(talk, words).ask(create(version, owner=CAT), view=without_ids)


@book.case("describe", versions=VERSIONS, over={each or "nothing": each for each in SEERS})
def described(talk: Talk, version: int, words: str) -> None:
    made = token_of_cat(talk)
    client = bob(talk, words, made.token_id)
    for owners in (None, (CAT,), (("User", "bob"),)):
        client.ask(describe(version, owners), view=only(made))


@book.case(
    "of another owner",
    versions=RENEWED,
    over={
        f"{name}, {words or 'nothing'}": (act, words)
        for name, act in (("renew", renew), ("expire", expire))
        for words in ("", f"{SEES}, {SEES_ALL}, {CREATES}", "ALL D id, ALL U cat")
    },
)
def of_another(talk: Talk, version: int, what: tuple[object, str]) -> None:
    act, words = what
    assert callable(act)
    made = token_of_cat(talk)
    bob(talk, words, made.token_id).ask(act(version, made.hmac, HOUR_MS), view=since(made))
