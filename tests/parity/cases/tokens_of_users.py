"""Create, renew, expire and describe delegation tokens (38-41), by users who have logged in.

ann may do everything, bob and cat have no ACL. Ids and HMACs are made up by each broker: what is
recorded is whether the HMAC is the one of the id. Times are minutes since the token was issued.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kbroker.security.client_login import ClientLogin
from kbroker.security.delegation_token import hmac_of, password_of
from tests.parity.book import Book
from tests.parity.cases.delegation_tokens import (
    OWNED,
    RENEWED,
    RENEWERS,
    VERSIONS,
    Principal,
    create,
    describe,
    expire,
    renew,
)
from tests.parity.sides import SUPER_USER, TOKEN_SECRET, USERS, login_of
from tests.parity.talk import Connection, Talk, View

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_SINCE_ISSUED: Final = ("issue_timestamp", "expiry_timestamp", "max_timestamp")

book = Book(setup=USERS)
cases = book.cases


class Made(NamedTuple):
    token_id: str
    hmac: bytes
    issued_ms: int

    @property
    def login(self) -> ClientLogin:
        return ClientLogin("SCRAM-SHA-256", self.token_id, password_of(self.hmac), is_token=True)


def minutes(time_ms: int, issued_ms: int) -> int:
    """0 and -1 are no times."""
    return time_ms if time_ms <= 0 else round((time_ms - issued_ms) / _MINUTE_MS)


def without_ids(data: Any) -> Any:
    """Of a token."""
    issued_ms, token_id = data["issue_timestamp"], data["token_id"]
    return {
        **data,
        **{name: minutes(data[name], issued_ms) for name in _SINCE_ISSUED},
        "token_id": f"{len(token_id)} characters",
        "hmac": "its own" if data["hmac"] == _hmac(token_id) else data["hmac"],
    }


def _hmac(token_id: str) -> str:
    return hmac_of(TOKEN_SECRET, token_id).hex() if token_id else ""


def since(made: Made) -> View:
    def view(data: Any) -> Any:
        time_ms = data["expiry_timestamp"]
        return {**data, "expiry_timestamp": minutes(time_ms, made.issued_ms)}

    return view


def only(*tokens: Made) -> View:
    """These, in their order."""
    ids = [each.token_id for each in tokens]

    def view(data: Any) -> Any:
        mine = [each for each in data["tokens"] if each["token_id"] in ids]
        mine.sort(key=lambda each: ids.index(each["token_id"]))
        return {**data, "tokens": [without_ids(each) for each in mine]}

    return view


def made_by(connection: Connection, talk: Talk, request: Any, *, record: bool = True) -> Made:
    """Created, and there."""
    entity = connection.ask(request, view=without_ids, record=record)
    issued_ms = round(entity.issue_timestamp.timestamp() * 1000)
    made = Made(entity.token_id, entity.hmac, issued_ms)
    talk.until(lambda: found(talk, made))
    return made


def found(talk: Talk, made: Made) -> bool:
    listed = talk.quietly(describe(3, None)).tokens
    return any(each.token_id == made.token_id for each in listed)


@book.case("create, renewed by", versions=VERSIONS, over=RENEWERS)
def created(talk: Talk, version: int, renewers: tuple[Principal, ...]) -> None:
    bob = talk.connect(login=login_of("bob"))
    if any(kind != "User" for kind, _ in renewers):
        bob.ask(create(version, *renewers))
        return
    made = made_by(bob, talk, create(version, *renewers))
    for described in VERSIONS:
        bob.ask(describe(described, None), view=only(made))


LIFETIMES: Final = {
    "-2": -2,
    "-1": -1,
    "0": 0,
    "an hour": HOUR_MS,
    "two days": 2 * DAY_MS,
    "eight days": 8 * DAY_MS,
    "a thousand years": 365_000 * DAY_MS,
}


@book.case("create, to live", versions=VERSIONS, over=LIFETIMES)
def lifetime(talk: Talk, version: int, lifetime_ms: int) -> None:
    bob = talk.connect(login=login_of("bob"))
    made_by(bob, talk, create(version, lifetime=lifetime_ms))


@book.case(
    "create for an owner",
    versions=OWNED,
    over={
        f"{kind} {name} by {user}": (user, kind, name)
        for user in (SUPER_USER, "bob")
        for kind, name in (
            *((None, None), ("User", "cat"), ("User", "bob"), ("User", ""), ("User", None)),
            *(("Group", "cat"), ("", "cat"), ("user", "bob")),
        )
    },
)
def owned(talk: Talk, version: int, what: tuple[str, str | None, str | None]) -> None:
    user, kind, name = what
    by = talk.connect(login=login_of(user))
    by.ask(create(version, ("User", "bob"), owner=(kind, name)), view=without_ids)


PERIODS: Final = {"-2": -2, "-1": -1, "0": 0, "an hour": HOUR_MS, "eight days": 8 * DAY_MS}


@book.case("renew, by its owner", versions=RENEWED, over=PERIODS)
def renewed(talk: Talk, version: int, period_ms: int) -> None:
    bob = talk.connect(login=login_of("bob"))
    made = made_by(bob, talk, create(3, lifetime=2 * DAY_MS), record=False)
    bob.ask(renew(version, made.hmac, period_ms), view=since(made))
    bob.ask(renew(version, made.hmac, period_ms), view=since(made))


@book.case("expire, by its owner", versions=RENEWED, over=PERIODS)
def expired(talk: Talk, version: int, period_ms: int) -> None:
    bob = talk.connect(login=login_of("bob"))
    made = made_by(bob, talk, create(3, lifetime=2 * DAY_MS), record=False)
    bob.ask(expire(version, made.hmac, period_ms), view=since(made))
    if period_ms < 0:
        talk.until(lambda: not found(talk, made))
        bob.ask(expire(version, made.hmac, period_ms), view=since(made))
        bob.ask(renew(version, made.hmac, period_ms), view=since(made))


@book.case("by another", versions=RENEWED, over={"renew": renew, "expire": expire})
def by_another(talk: Talk, version: int, change: Any) -> None:
    """A renewer may; who is neither renewer nor owner may not, and neither may a super user."""
    bob, cat = (talk.connect(login=login_of(each)) for each in ("bob", "cat"))
    made = made_by(bob, talk, create(3, ("User", "cat")), record=False)
    cat.ask(change(version, made.hmac, HOUR_MS), view=since(made))
    talk.ask(change(version, made.hmac, HOUR_MS), view=since(made))
    own = made_by(bob, talk, create(3), record=False)
    cat.ask(change(version, own.hmac, HOUR_MS), view=since(own))


@book.case("a wrong code", versions=RENEWED, over={"renew": renew, "expire": expire})
def wrong_code(talk: Talk, version: int, change: Any) -> None:
    bob = talk.connect(login=login_of("bob"))
    made = made_by(bob, talk, create(3), record=False)
    for code in (b"", b"x", made.hmac[:-1], made.hmac + b"x", made.token_id.encode()):
        bob.ask(change(version, code), view=since(made))


OWNERS: Final[dict[str, tuple[Principal, ...] | None]] = {
    "all": None,
    "none": (),
    "bob": (("User", "bob"),),
    "cat": (("User", "cat"),),
    "a group": (("Group", "bob"),),
    "twice": (("User", "bob"), ("User", "bob")),
}


@book.case("describe", versions=VERSIONS, over=OWNERS)
def described(talk: Talk, version: int, owners: tuple[Principal, ...] | None) -> None:
    """By the owner, a renewer, a super user who has asked for one of them, and a stranger."""
    bob, cat = (talk.connect(login=login_of(each)) for each in ("bob", "cat"))
    own = made_by(bob, talk, create(3), record=False)
    renewable = made_by(bob, talk, create(3, ("User", "cat")), record=False)
    given = made_by(talk.main, talk, create(3, owner=("User", "cat")), record=False)
    for asking in (bob, cat, talk.main):
        asking.ask(describe(version, owners), view=only(own, renewable, given))


@book.case("by a client that has come with a token", versions=RENEWED)
def with_a_token(talk: Talk, version: int) -> None:
    bob = talk.connect(login=login_of("bob"))
    made = made_by(bob, talk, create(3), record=False)
    by_token = talk.connect(login=made.login)
    by_token.ask(create(version))
    by_token.ask(renew(version, made.hmac))
    by_token.ask(describe(version, None))
    by_token.ask(expire(version, made.hmac))
