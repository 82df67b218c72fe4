"""CreateDelegationToken and its like: who is let in, what is answered, and a login with a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import audited
from kbroker.metadata.controller import token_records
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.token_changes import TokenChanges, TokenEvent
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.store.base import Check
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.users import ImageUsers
from kbroker.protocol import messages
from kbroker.security.acl_set import NO_ACL_SET
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission, ResourceAcls
from kbroker.security.authorizer import AclAuthorizer, Rules
from kbroker.security.delegation_token import DelegationToken, hmac_of, password_of
from kbroker.security.denials import Denials
from kbroker.security.mechanism import CredentialsError, Login
from kbroker.security.rights import Operation, ResourceType
from kbroker.security.scram import ScramMechanism, new_credential
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_server import ScramServer
from kbroker.security.session import Principal
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker

SECRET = "the secret of the cluster"
SETTINGS = (f"delegation.token.secret.key={SECRET}", "delegation.token.expiry.time.ms=1000")
ANNA, BOB, EVE = (Principal("User", name) for name in ("anna", "bob", "eve"))
CREATE, RENEW, EXPIRE, DESCRIBE = (
    messages.create_delegation_token,
    messages.renew_delegation_token,
    messages.expire_delegation_token,
    messages.describe_delegation_token,
)
KEYS = {
    CREATE: ApiKey.CREATE_DELEGATION_TOKEN,
    RENEW: ApiKey.RENEW_DELEGATION_TOKEN,
    EXPIRE: ApiKey.EXPIRE_DELEGATION_TOKEN,
    DESCRIBE: ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class TokenBroker(FakeBroker):
    """With the real changes of tokens, on a store of its own."""

    def __init__(self, store: EmbeddedStore, overrides: tuple[str, ...] = SETTINGS) -> None:
        super().__init__(overrides=overrides)
        propagation = Propagation(lambda image, delta: [], self._show)
        changes = TokenChanges(propagation, self.clock, self.config, has_notices=False)
        propagation.publish(changes.read_into(self.controller.image, store))
        nodes = MetadataNodes(store, Check("/controller_epoch", 0), 1)

        def change(event: TokenEvent) -> None:
            try:
                changes.handle(nodes, event)()
            except KafkaError as error:
                event.fail(error)

        self.controller.change_tokens = change  # type: ignore[attr-defined]

    def _show(self, image: ClusterImage) -> None:
        self.controller.image = image

    def tell(self, table: Any, by: Principal, version: int | None = None, **fields: Any) -> Any:
        key = KEYS[table]
        version = table.Request.versions[1] if version is None else version
        request = self.send(key, version, table.Request(**fields).encode(version), principal=by)
        assert request.answer is not None, request.closed
        return table.Response.decode(request.answer, version)

    def made(self, by: Principal = ANNA, version: int = 3, **fields: Any) -> Any:
        return self.tell(CREATE, by, version, **{"renewers": [], "max_lifetime_ms": -1, **fields})

    def listed(self, by: Principal, owners: list[Principal] | None = None) -> list[str]:
        asked = None if owners is None else [
            DESCRIBE.DescribeDelegationTokenOwner(
                principal_type=each.type, principal_name=each.name
            )
            for each in owners
        ]  # fmt: skip
        answer = self.tell(DESCRIBE, by, owners=asked)
        assert answer.error_code == ErrorCode.NONE
        return [each.token_id for each in answer.tokens]

    def authorize(self, *acls: Acl) -> None:
        by_pattern = {each.pattern: ResourceAcls.of([each.entry]) for each in acls}
        acl_set = NO_ACL_SET.with_changed(by_pattern)
        denials = Denials(self.clock)
        self.services.authorizer = AclAuthorizer(Rules(), lambda: acl_set, denials)


def allow(who: Principal, operation: Operation, type_: ResourceType, name: str) -> Acl:
    entry = Entry(str(who), "*", operation, Permission.ALLOW)
    return Acl(Pattern(type_, PatternType.LITERAL, name), entry)


def renewers(*principals: Principal) -> list[Any]:
    return [
        CREATE.CreatableRenewers(principal_type=each.type, principal_name=each.name)
        for each in principals
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path)
    for path in (*token_records.TOKEN_FOLDERS, "/controller_epoch"):
        store.create(path)
    yield store
    store.close()


@pytest.fixture
def broker(store: EmbeddedStore) -> TokenBroker:
    return TokenBroker(store)


# --- who is let in --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [Principal("User", "ANONYMOUS"), ANNA._replace(by_token=True)])
def test_a_client_without_a_login_of_its_own_gets_none(broker: TokenBroker, by: Principal) -> None:
    broker.made(EVE)
    assert broker.made(by).error_code == NOT_ALLOWED
    # Whatever else is wrong.
    assert broker.made(by, renewers=renewers(Principal("Group", "g"))).error_code == NOT_ALLOWED
    assert broker.tell(RENEW, by, hmac=b"", renew_period_ms=1).error_code == NOT_ALLOWED
    assert broker.tell(EXPIRE, by, hmac=b"", expiry_time_period_ms=1).error_code == NOT_ALLOWED
    answer = broker.tell(DESCRIBE, by, owners=None)
    assert (answer.error_code, list(answer.tokens)) == (NOT_ALLOWED, [])


def test_without_a_secret_there_are_no_tokens(store: EmbeddedStore) -> None:
    broker = TokenBroker(store, ())
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert broker.made().error_code == disabled
    assert broker.tell(RENEW, ANNA, hmac=b"", renew_period_ms=1).error_code == disabled
    assert broker.tell(EXPIRE, ANNA, hmac=b"", expiry_time_period_ms=1).error_code == disabled
    assert broker.tell(DESCRIBE, ANNA, owners=[]).error_code == disabled
    group = renewers(Principal("Group", "g"))
    assert broker.made(renewers=group).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_another_owner_needs_a_right(broker: TokenBroker) -> None:
    broker.authorize(allow(ANNA, Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    for_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    answer = broker.made(ANNA, **for_bob)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "anna")
    refused = broker.made(EVE, **for_bob)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "eve")
    assert (refused.issue_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
    assert broker.made(EVE, owner_principal_type="User", owner_principal_name="eve").token_id


@pytest.mark.parametrize("owner", [("Group", "g"), ("", "anna"), ("user", "anna")])
def test_an_owner_is_a_user(broker: TokenBroker, owner: tuple[str, str]) -> None:
    """It would log in as the user of that name."""
    answer = broker.made(owner_principal_type=owner[0], owner_principal_name=owner[1])
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert broker.controller.image.tokens == {}


# --- what is answered -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 4))
def test_a_new_token(broker: TokenBroker, version: int) -> None:
    answer = broker.made(version=version, renewers=renewers(BOB), max_lifetime_ms=500)
    (token,) = broker.controller.image.tokens.values()
    now_ms = broker.clock.wall_ms()
    assert token == DelegationToken(
        answer.token_id, ANNA, ANNA, (BOB,), now_ms, now_ms + 500, now_ms + 500
    )
    assert answer.hmac == hmac_of(SECRET, token.token_id)
    assert (answer.principal_type, answer.principal_name) == ("User", "anna")
    requester = answer.token_requester_principal_name
    assert requester == ("anna" if version >= 3 else "")
    times = answer.issue_timestamp_ms, answer.max_timestamp_ms, answer.expiry_timestamp_ms
    assert times == (token.issued_ms, token.max_ms, token.expires_ms)


@pytest.mark.parametrize("version", (1, 2))
def test_a_token_is_renewed_and_expires(broker: TokenBroker, version: int) -> None:
    hmac, now_ms = broker.made(renewers=renewers(BOB)).hmac, broker.clock.wall_ms()
    answer = broker.tell(RENEW, BOB, version, hmac=hmac, renew_period_ms=5)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, now_ms + 5)
    answer = broker.tell(RENEW, EVE, version, hmac=hmac, renew_period_ms=5)
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (answer.error_code, answer.expiry_timestamp_ms) == (mismatch, 0)
    answer = broker.tell(EXPIRE, BOB, version, hmac=hmac, expiry_time_period_ms=7)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, now_ms + 7)
    answer = broker.tell(EXPIRE, ANNA, version, hmac=hmac, expiry_time_period_ms=-9)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, now_ms)
    answer = broker.tell(EXPIRE, ANNA, version, hmac=hmac, expiry_time_period_ms=-9)
    not_found = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert (answer.error_code, answer.expiry_timestamp_ms) == (not_found, 0)


def test_tokens_that_a_client_sees(broker: TokenBroker) -> None:
    broker.authorize()
    own = broker.made(ANNA).token_id
    renewed = broker.made(BOB, renewers=renewers(ANNA)).token_id
    broker.authorize(allow(ANNA, Operation.CREATE_TOKENS, ResourceType.USER, "User:eve"))
    for_eve = {"owner_principal_type": "User", "owner_principal_name": "eve"}
    requested = broker.made(ANNA, **for_eve).token_id
    foreign = broker.made(BOB).token_id
    assert set(broker.listed(ANNA)) == {own, renewed, requested}
    assert broker.listed(ANNA, []) == []
    assert set(broker.listed(ANNA, [EVE])) == {requested}
    assert set(broker.listed(ANNA, [BOB, BOB])) == {renewed}
    assert broker.listed(ANNA, [Principal("Group", "anna")]) == []
    assert set(broker.listed(BOB)) == {renewed, foreign}
    broker.authorize(
        allow(ANNA, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, foreign),
        allow(EVE, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"),
    )
    assert set(broker.listed(ANNA)) == {own, renewed, requested, foreign}
    assert set(broker.listed(EVE)) == {renewed, requested, foreign}
    assert set(broker.listed(EVE, [EVE])) == {requested}
    broker.services.authorizer = None
    assert len(broker.listed(Principal("User", "zoe"))) == 4


@pytest.mark.parametrize("version", range(1, 4))
def test_a_described_token(broker: TokenBroker, version: int) -> None:
    made = broker.made(renewers=renewers(BOB, EVE))
    answer = broker.tell(DESCRIBE, EVE, version, owners=None)
    (found,) = answer.tokens
    assert (found.token_id, found.hmac) == (made.token_id, made.hmac)
    assert (found.principal_type, found.principal_name) == ("User", "anna")
    assert found.token_requester_principal_name == ("anna" if version >= 3 else "")
    times = found.issue_timestamp, found.max_timestamp, found.expiry_timestamp
    assert times == (made.issue_timestamp_ms, made.max_timestamp_ms, made.expiry_timestamp_ms)
    assert [each.principal_name for each in found.renewers] == ["bob", "eve"]


def test_the_authorizer_is_asked_about_all_tokens_at_once(
    broker: TokenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        broker.made(BOB)
    asked = []
    authorize = AclAuthorizer.authorize

    def count(self: AclAuthorizer, *args: Any, **more: Any) -> Any:
        asked.append(args)
        return authorize(self, *args, **more)

    monkeypatch.setattr(AclAuthorizer, "authorize", count)
    broker.authorize()
    assert broker.listed(EVE) == [] and len(asked) == 2


def test_many_owners_take_no_more_time_than_tokens_do(broker: TokenBroker) -> None:
    for _ in range(20):
        broker.made()
    assert broker.listed(ANNA, [Principal("User", str(each)) for each in range(50_000)]) == []


def test_a_failure_names_the_owner(broker: TokenBroker) -> None:
    broker.controller.change_tokens = lambda event: event.fail(  # type: ignore[attr-defined]
        KafkaError(ErrorCode.NOT_CONTROLLER, "there is none")
    )
    answer = broker.made()
    assert (answer.error_code, answer.principal_name) == (ErrorCode.NOT_CONTROLLER, "anna")


# --- what is recorded -----------------------------------------------------------------------------


def test_a_record_has_the_token_and_not_its_hmac(broker: TokenBroker) -> None:
    before, made = broker.controller.image, broker.made()
    (item,) = audited.AUDITED[ApiKey.CREATE_DELEGATION_TOKEN](
        audited.Asked(before, None, made, made.token_id)
    )
    assert item.resource == f"token:{made.token_id}"
    assert item.more == {"owner": "User:anna", "expires_ms": made.expiry_timestamp_ms}
    renewed = RENEW.Response(error_code=ErrorCode.NONE, expiry_timestamp_ms=9)
    (item,) = audited.AUDITED[ApiKey.RENEW_DELEGATION_TOKEN](
        audited.Asked(broker.controller.image, None, renewed, made.token_id)
    )
    expected = {"owner": "User:anna", "expires_ms": 9}
    assert item.more == {**expected, "expires_ms_before": made.expiry_timestamp_ms}
    refused = RENEW.Response(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    (item,) = audited.AUDITED[ApiKey.RENEW_DELEGATION_TOKEN](audited.Asked(before, None, refused))
    assert item == ("token:", ErrorCode.DELEGATION_TOKEN_NOT_FOUND, {})


# --- logins ---------------------------------------------------------------------------------------


def log_in(
    users: ImageUsers, mechanism: ScramMechanism, name: str, password: str, *, is_token: bool = True
) -> Login | None:
    """CredentialsError: it is refused."""
    server = ScramServer(mechanism, users)
    client = ScramClient(mechanism, name, password, is_token=is_token)
    client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    return server.login


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_token_logs_its_owner_in(broker: TokenBroker, mechanism: ScramMechanism) -> None:
    made = broker.made(EVE)
    users = ImageUsers(lambda: broker.controller.image, b"x", SECRET)
    password = password_of(made.hmac)
    expected = Login("eve", True, made.expiry_timestamp_ms)
    for _ in range(2):
        assert log_in(users, mechanism, made.token_id, password) == expected
    for name, word, is_token in (
        (made.token_id, "wrong", True),
        (made.token_id, password, False),
        ("eve", password, True),
        ("nowhere", password, True),
    ):
        with pytest.raises(CredentialsError):
            log_in(users, mechanism, name, word, is_token=is_token)
    broker.tell(EXPIRE, EVE, hmac=made.hmac, expiry_time_period_ms=-1)
    with pytest.raises(CredentialsError):
        log_in(users, mechanism, made.token_id, password)


def test_a_token_without_a_secret_or_of_no_user_logs_no_client_in() -> None:
    tokens = {
        "x": DelegationToken("x", ANNA, ANNA, (), 1, 2, 3),
        "g": DelegationToken("g", Principal("Group", "anna"), ANNA, (), 1, 2, 3),
    }
    image = ClusterImage().with_all_tokens(tokens)
    mechanism = ScramMechanism.SHA_256
    for secret in (None, ""):
        users = ImageUsers(lambda: image, b"x", secret)
        assert users.token(mechanism, "x") is None
    users = ImageUsers(lambda: image, b"x", SECRET)
    assert users.token(mechanism, "g") is None
    found = users.token(mechanism, "x")
    assert found is not None and found.expires_ms == 2


def test_an_id_that_is_there_looks_like_one_that_is_not() -> None:
    """To a client that does not know its password."""
    mechanism = ScramMechanism.SHA_512
    stored = str(new_credential(mechanism, "p", iterations=8_192, salt=b"s" * 64))
    image = ClusterImage().with_all_tokens({"x": DelegationToken("x", ANNA, ANNA, (), 1, 2, 3)})
    image = image.with_users({"anna": {mechanism.value: stored}})
    users, without = (ImageUsers(lambda: image, b"x", secret) for secret in (SECRET, None))
    found = users.token(mechanism, "x")
    assert found is not None
    fake = without.fake(mechanism, "x")
    assert (found.credential.salt, found.credential.iterations) == (fake.salt, fake.iterations)
