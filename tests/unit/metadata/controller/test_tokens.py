"""Delegation tokens at the controller: made, renewed, removed, kept; and those of others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.limits import NOTICES_KEPT_MAX
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.cluster_delta_codec import decode_delta, encode_delta
from kbroker.metadata.controller import Controller, token_changes, token_records
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.token_changes import (
    CreateToken,
    ExpireToken,
    RenewToken,
    SweepTokens,
    TokenChanges,
)
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.store.base import Check, MultiError, Operation
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.protocol.wire import ProtocolError
from kbroker.security.delegation_token import DelegationToken, hmac_of, new_token_id
from kbroker.security.session import Principal
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

ANNA, BOB, EVE = (Principal("User", name) for name in ("anna", "bob", "eve"))
SECRET = "the secret of the cluster"
HOUR_MS = 3_600_000
TOKEN_SETTINGS: dict[str, Any] = {
    "delegation.token.secret.key": SECRET,
    "delegation.token.max.lifetime.ms": 10 * HOUR_MS,
    "delegation.token.expiry.time.ms": HOUR_MS,
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
PRINCIPALS = st.builds(Principal, TEXTS.filter(lambda text: ":" not in text), TEXTS, st.just(False))
RENEWERS = PRINCIPALS | st.just(Principal("User", ""))
TIMES = st.integers(0, 2**63 - 1)
TOKENS = st.builds(
    DelegationToken, st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), PRINCIPALS, PRINCIPALS,
    st.lists(RENEWERS, max_size=3).map(tuple), TIMES, TIMES, TIMES,
)  # fmt: skip


class Tokens:
    """The part of a controller that changes tokens, on a store of its own."""

    def __init__(self, store: EmbeddedStore, **settings: Any) -> None:
        self.store = store
        self.clock = ManualClock()
        self.propagation = Propagation(lambda image, delta: [])
        config = {**TOKEN_SETTINGS, **settings}
        self.changes = TokenChanges(self.propagation, self.clock, config, has_notices=True)
        self.nodes = MetadataNodes(store, Check("/controller_epoch", 0), 1)
        self.load()

    def load(self) -> None:
        self.propagation.publish(self.changes.read_into(ClusterImage(), self.store))

    @property
    def known(self) -> dict[str, DelegationToken]:
        return dict(self.propagation.image.tokens)

    def ask(self, kind: Any, *fields: Any) -> Any:
        answers: list[Any] = []
        try:
            self.changes.handle(self.nodes, kind(*fields, answers.append))()
        except KafkaError as error:
            return error.code
        return answers[0]

    def create(
        self,
        owner: Principal = ANNA,
        requester: Principal = ANNA,
        renewers: tuple[Principal, ...] = (BOB,),
        lifetime_ms: int = -1,
    ) -> Any:
        return self.ask(CreateToken, owner, requester, renewers, lifetime_ms)

    def renew(self, token: DelegationToken, by: Principal = ANNA, period_ms: int = -1) -> Any:
        return self.ask(RenewToken, hmac_of(SECRET, token.token_id), by, period_ms)

    def expire(self, token: DelegationToken, by: Principal = ANNA, period_ms: int = -1) -> Any:
        return self.ask(ExpireToken, hmac_of(SECRET, token.token_id), by, period_ms)

    def node(self, token: DelegationToken) -> Any:
        return json.loads(self.store.get(f"/delegation_token/tokens/{token.token_id}").data)

    def note(self, token_id: str) -> None:
        """As another program does."""
        numbers = [int(each[-10:]) for each in self.store.children(token_records.CHANGES)]
        number = max(numbers, default=-1) + 1
        path = f"{token_records.CHANGES}/token_change_{number:010d}"
        self.store.create(path, token_id.encode())


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    store = EmbeddedStore.open(tmp_path)
    for path in (*token_records.TOKEN_FOLDERS, "/controller_epoch"):
        store.create(path)
    yield Tokens(store)
    store.close()


# --- what clients ask for -------------------------------------------------------------------------


def test_the_node_of_a_token_is_that_of_apache_kafka(tokens: Tokens) -> None:
    token = tokens.create(owner=Principal("User", "an na/é*"), requester=EVE)
    now_ms = tokens.clock.wall_ms()
    assert tokens.node(token) == {
        "version": 3,
        "owner": "User%3Aan%20na%2F%C3%A9%2A",
        "tokenRequester": "User%3Aeve",
        "renewers": ["User%3Abob"],
        "issueTimestamp": now_ms,
        "maxTimestamp": now_ms + 10 * HOUR_MS,
        "expiryTimestamp": now_ms + HOUR_MS,
        "tokenId": token.token_id,
    }
    assert SECRET not in str(tokens.node(token))
    (notice,) = tokens.store.children(token_records.CHANGES)
    assert token_records.notice_number(notice) is not None
    assert tokens.store.get(f"{token_records.CHANGES}/{notice}").data == token.token_id.encode()
    assert tokens.known == {token.token_id: token}


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expires_ms"),
    [
        (-1, 10 * HOUR_MS, HOUR_MS),
        (0, 10 * HOUR_MS, HOUR_MS),
        (1, 1, 1),
        (2 * HOUR_MS, 2 * HOUR_MS, HOUR_MS),
        (2**63 - 1, 10 * HOUR_MS, HOUR_MS),
        (-(2**63), 10 * HOUR_MS, HOUR_MS),
    ],
)
def test_how_long_a_token_lives(
    tokens: Tokens, lifetime_ms: int, max_ms: int, expires_ms: int
) -> None:
    token = tokens.create(lifetime_ms=lifetime_ms)
    now_ms = tokens.clock.wall_ms()
    assert (token.max_ms, token.expires_ms) == (now_ms + max_ms, now_ms + expires_ms)


def test_no_time_is_beyond_64_bits(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    for path in (*token_records.TOKEN_FOLDERS, "/controller_epoch"):
        store.create(path)
    longest = 2**63 - 1
    keys = "delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms"
    tokens = Tokens(store, **dict.fromkeys(keys, longest))
    token = tokens.create()
    assert (token.max_ms, token.expires_ms) == (longest, longest)
    assert tokens.renew(token, period_ms=longest).expires_ms == longest
    assert tokens.expire(token, period_ms=longest).expires_ms == longest
    tokens.load()
    assert tokens.known == {token.token_id: token}
    store.close()


def test_a_renewal_ends_with_the_longest_life(tokens: Tokens) -> None:
    token = tokens.create()
    tokens.clock.advance(HOUR_MS // 2)
    now_ms = tokens.clock.wall_ms()
    for period_ms, expected_ms in ((-1, HOUR_MS), (0, HOUR_MS), (7, 7), (2**63 - 1, HOUR_MS)):
        renewed = tokens.renew(token, BOB, period_ms)
        assert renewed == token._replace(expires_ms=now_ms + expected_ms)
    assert tokens.node(token)["expiryTimestamp"] == now_ms + HOUR_MS
    for _ in range(20):
        tokens.clock.advance(HOUR_MS // 2)
        renewed = tokens.renew(token)
        if renewed is ErrorCode.DELEGATION_TOKEN_EXPIRED:
            break
        assert renewed.expires_ms <= token.max_ms
    assert tokens.clock.wall_ms() > token.max_ms


def test_a_token_expires_earlier_or_at_once(tokens: Tokens) -> None:
    token, other = tokens.create(), tokens.create()
    now_ms = tokens.clock.wall_ms()
    assert tokens.expire(token, BOB, 5).expires_ms == now_ms + 5
    assert tokens.expire(token, BOB, 2**63 - 1).expires_ms == token.max_ms
    assert tokens.expire(token, BOB, 0).expires_ms == now_ms
    tokens.clock.advance(1)
    assert tokens.expire(token, ANNA, 0) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(other) == other._replace(expires_ms=now_ms + 1)
    assert tokens.known.keys() == {token.token_id}
    assert tokens.expire(token, ANNA) == token._replace(expires_ms=now_ms + 1)
    assert tokens.known == {}
    assert not tokens.store.exists(f"/delegation_token/tokens/{other.token_id}")
    assert tokens.expire(other) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_errors_come_in_the_order_of_apache_kafka(tokens: Tokens) -> None:
    token = tokens.create(requester=EVE)
    unknown = token._replace(token_id="x")
    for ask in (tokens.renew, tokens.expire):
        assert ask(unknown, EVE) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        # Who has asked for it may see it, and no more.
        assert ask(token, EVE) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.ask(RenewToken, b"", ANNA, 1) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    tokens.clock.advance(HOUR_MS + 1)
    assert tokens.renew(token, EVE) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    for period_ms in (-1, 0, 1):
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert tokens.expire(token, EVE, period_ms) is mismatch
    assert tokens.expire(token, ANNA, 1) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    tokens.changes.handle(tokens.nodes, SweepTokens())()
    assert tokens.known == {}
    for ask in (tokens.renew, tokens.expire):
        assert ask(token) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_principal_is_the_same_by_a_token(tokens: Tokens) -> None:
    token = tokens.create()
    by_token = ANNA._replace(by_token=True)
    assert token.may_renew(by_token)
    assert tokens.create(owner=by_token, requester=by_token, renewers=(by_token,)).owner == ANNA


def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    for secret in (None, ""):
        tokens = Tokens(store, **{"delegation.token.secret.key": secret})
        token = DelegationToken("x", ANNA, ANNA, (), 0, 1, 1)
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert (tokens.create(), tokens.renew(token), tokens.expire(token)) == (disabled,) * 3
    store.close()


def test_tokens_are_bounded(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ErrorCode.POLICY_VIOLATION
    monkeypatch.setattr(token_changes, "TOKENS_OF_OWNER_MAX", 2)
    monkeypatch.setattr(token_changes, "TOKENS_MAX", 3)
    first = tokens.create()
    tokens.create()
    assert tokens.create() is refused
    tokens.create(owner=BOB)
    assert tokens.create(owner=EVE) is refused
    tokens.expire(first)
    assert isinstance(tokens.create(), DelegationToken)
    tokens.load()  # they are counted again
    monkeypatch.setattr(token_changes, "TOKENS_MAX", 4)
    assert tokens.create() is refused
    assert tokens.create(owner=EVE, renewers=(BOB,) * 1_000) is refused
    assert tokens.create(owner=EVE, renewers=(Principal("User", "x" * 4_096),)) is refused
    assert isinstance(tokens.create(owner=EVE), DelegationToken)


def test_memory_of_tokens_is_bounded(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Principals with short names take far more memory than text."""
    refused = ErrorCode.POLICY_VIOLATION
    many = (Principal("User", "x"),) * 600
    size = tokens.create(renewers=many).size_bytes
    assert size > 600 * 200
    monkeypatch.setattr(token_changes, "TOKENS_OF_OWNER_BYTES_MAX", 2 * size)
    monkeypatch.setattr(token_changes, "TOKENS_BYTES_MAX", 3 * size)
    second = tokens.create(renewers=many)
    assert tokens.create(renewers=many) is refused
    third = tokens.create(owner=EVE, requester=EVE, renewers=many)
    assert tokens.create(owner=BOB, renewers=many) is refused
    tokens.expire(second)
    assert isinstance(tokens.create(renewers=many), DelegationToken)
    tokens.load()  # they are counted again
    assert tokens.create(owner=BOB, renewers=many) is refused
    tokens.expire(third, by=EVE)
    assert isinstance(tokens.create(owner=BOB, renewers=many), DelegationToken)


def test_tokens_that_have_gone_leave_nothing(tokens: Tokens) -> None:
    """Also where none is ever renewed."""
    for number in range(20):
        tokens.create(owner=Principal("User", str(number)), lifetime_ms=5)
    tokens.clock.advance(6)
    tokens.changes.handle(tokens.nodes, SweepTokens())()
    index = tokens.changes._index
    assert not index._missing and not index._owners and index.size_bytes == 0


def test_a_renewer_without_a_name_is_kept(tokens: Tokens) -> None:
    token = tokens.create(renewers=(Principal("User", ""), BOB))
    tokens.load()
    assert tokens.known == {token.token_id: token}


def test_a_token_stays_where_its_notice_cannot_be_written(tokens: Tokens) -> None:
    """A token that is removed here alone would be back with the next controller."""
    token = tokens.create()
    for each in tokens.store.children(token_records.CHANGES):
        tokens.store.delete(f"{token_records.CHANGES}/{each}")
    tokens.store.delete(token_records.CHANGES)
    for ask in (tokens.expire, tokens.renew):
        with pytest.raises(MultiError):
            ask(token)
    assert tokens.known == {token.token_id: token}


def test_tokens_that_are_over_are_removed(tokens: Tokens) -> None:
    short = [tokens.create(lifetime_ms=5) for _ in range(3)]
    stays = tokens.create()
    tokens.clock.advance(5)
    tokens.changes.handle(tokens.nodes, SweepTokens())()
    assert len(tokens.known) == 4  # one that ends now is not over yet
    tokens.clock.advance(1)
    # Another program has removed one of them meanwhile.
    tokens.store.delete(f"/delegation_token/tokens/{short[1].token_id}")
    tokens.changes.handle(tokens.nodes, SweepTokens())()
    assert tokens.known == {stays.token_id: stays}
    assert tokens.store.children(token_records.TOKENS) == [stays.token_id]


def test_hmacs_follow_many_changes(tokens: Tokens) -> None:
    for _ in range(3):
        some = [tokens.create(lifetime_ms=5) for _ in range(20)]
        assert all(tokens.renew(each) for each in some)
        tokens.clock.advance(6)
        tokens.changes.handle(tokens.nodes, SweepTokens())()
        assert {tokens.renew(each) for each in some} == {ErrorCode.DELEGATION_TOKEN_NOT_FOUND}
    token = tokens.create()
    tokens.load()
    assert tokens.renew(token) == tokens.known[token.token_id]


# --- what others write ----------------------------------------------------------------------------


def test_notices_of_others_are_followed(tokens: Tokens) -> None:
    token = tokens.create()
    ours = tokens.known
    assert tokens.changes.notices_came(tokens.nodes)  # our own: nothing follows
    assert tokens.known == ours
    other = DelegationToken("otheR_-1", BOB, ANNA, (), 1, 2, 3)
    path = token_records.token_path(other.token_id)
    tokens.store.create(path, token_records.encode_token(other))
    tokens.note(other.token_id)
    assert tokens.changes.notices_came(tokens.nodes)
    assert tokens.known == {**ours, other.token_id: other}
    tokens.store.set(path, token_records.encode_token(other._replace(expires_ms=9)))
    tokens.store.delete(token_records.token_path(token.token_id))
    for token_id in (other.token_id, token.token_id, "../x", "", "nowhere"):
        tokens.note(token_id)
    assert tokens.changes.notices_came(tokens.nodes)
    assert tokens.known == {other.token_id: other._replace(expires_ms=9)}
    assert tokens.renew(token) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_few_notices_are_kept(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(NOTICES_KEPT_MAX + 5):
        tokens.note("x")
    multi, written = tokens.store.multi, list[int]()

    def count(operations: Sequence[Operation]) -> list[int]:
        written.append(len(operations))
        return multi(operations)

    monkeypatch.setattr(tokens.store, "multi", count)
    assert tokens.changes.notices_came(tokens.nodes)
    assert len(tokens.store.children(token_records.CHANGES)) == NOTICES_KEPT_MAX
    assert len(written) == 1  # of many, one after the other would hold the controller up
    assert tokens.changes.notices_came(tokens.nodes)


def test_a_token_that_another_program_removes_cannot_be_renewed(tokens: Tokens) -> None:
    token, other = tokens.create(), tokens.create()
    for each in (token, other):
        tokens.store.delete(token_records.token_path(each.token_id))
    assert tokens.renew(token) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert isinstance(tokens.expire(other), DelegationToken)
    assert tokens.known == {}


DAMAGED = {
    "no JSON": b"{",
    "no object": b"[]",
    "a later version": b'{"version":4}',
    "no owner": b'{"version":1}',
    "another id": token_records.encode_token(DelegationToken("y", ANNA, ANNA, (), 1, 2, 3)),
    "half a surrogate pair": b'{"version":3,"tokenId":"x","owner":"User:\xed\xa0\x80"}',
    "nested": b'{"version":3,"owner":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_node_that_is_no_token_is_left_out(tokens: Tokens, data: bytes) -> None:
    token = tokens.create()
    tokens.store.create(token_records.token_path("x"), data)
    tokens.load()
    assert tokens.known == {token.token_id: token}
    tokens.note("x")
    assert tokens.changes.notices_came(tokens.nodes)
    assert tokens.known == {token.token_id: token}


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": "anna"},
        {"owner": ":anna"},
        {"owner": "User:"},
        {"owner": "User%3A%FF"},
        {"owner": 7},
        {"renewers": "User%3Abob"},
        {"renewers": [1]},
        {"renewers": ["User%3A" + "x" * 100_000]},
        {"maxTimestamp": -1},
        {"maxTimestamp": 2**63},
        {"maxTimestamp": True},
        {"issueTimestamp": "1"},
        {"expiryTimestamp": 1.5},
        {"tokenId": "a/b"},
    ],
)
def test_fields_that_are_none(fields: dict[str, Any]) -> None:
    token = DelegationToken("x", ANNA, EVE, (BOB,), 1, 2, 3)
    path, data = token_records.token_path("x"), token_records.encode_token(token)
    assert token_records.decode_token(path, data) == token
    written = json.dumps({**json.loads(data), **fields}).encode()
    with pytest.raises(DataDirectoryError):
        token_records.decode_token(path, written)


def test_an_earlier_version_of_a_node_has_no_requester() -> None:
    token = DelegationToken("x", ANNA, EVE, (BOB,), 1, 2, 3)
    fields = json.loads(token_records.encode_token(token))
    del fields["tokenRequester"]
    data = json.dumps({**fields, "version": 1}).encode()
    assert token_records.decode_token(token_records.token_path("x"), data).requester == ANNA


@given(TOKENS)
def test_a_token_is_read_as_it_was_written(token: DelegationToken) -> None:
    path = token_records.token_path(token.token_id)
    assert token_records.decode_token(path, token_records.encode_token(token)) == token


def test_ids_are_those_of_apache_kafka() -> None:
    made = {new_token_id() for _ in range(200)}
    assert len(made) == 200
    assert all(len(each) == 22 and token_records.is_token_id(each) for each in made)
    assert not any(each.startswith("-") for each in made)


# --- brokers --------------------------------------------------------------------------------------


@given(st.lists(TOKENS, max_size=3), st.lists(TOKENS, max_size=3))
def test_changes_between_images(
    before: list[DelegationToken], after: list[DelegationToken]
) -> None:
    old = ClusterImage().with_all_tokens({each.token_id: each for each in before})
    new = ClusterImage().with_all_tokens({each.token_id: each for each in after})
    delta = ClusterDelta.between(old, new)
    assert decode_delta(encode_delta(delta)) == delta
    assert delta.applied_to(old).tokens == new.tokens


def test_a_difference_without_tokens_is_that_of_an_earlier_kbroker() -> None:
    old = ClusterImage().with_all_tokens({"x": DelegationToken("x", ANNA, ANNA, (), 1, 2, 3)})
    assert ClusterDelta.between(old, old).tokens == {}
    data = encode_delta(ClusterDelta.between(old, ClusterImage()))
    assert b"\x01x" not in encode_delta(ClusterDelta.between(old, old))
    for cut in range(len(data) - 12, len(data)):
        with pytest.raises(ProtocolError):
            decode_delta(data[:cut])


class WithTokens(OneBroker):
    def __init__(self, directory: Path, node_id: int = 0) -> None:
        super().__init__(directory, node_id)
        self.settings.update(TOKEN_SETTINGS)


def test_tokens_are_kept_over_restarts(tmp_path: Path) -> None:
    broker = WithTokens(tmp_path)
    controller = broker.start()

    def create(controller: Controller) -> DelegationToken:
        made: DelegationToken = wait(
            lambda done: controller.change_tokens(CreateToken(ANNA, EVE, (BOB,), -1, done))
        )
        return made

    token = create(controller)
    assert controller.image.tokens == {token.token_id: token}
    controller = broker.restart()
    assert controller.image.tokens == {token.token_id: token}
    assert broker.store.children(token_records.CHANGES) == []  # no other program writes there
    hmac = hmac_of(SECRET, token.token_id)
    renewed = wait(lambda done: controller.change_tokens(RenewToken(hmac, BOB, 5, done)))
    assert renewed.expires_ms == broker.clock.wall_ms() + 5
    refused = wait(lambda done: controller.change_tokens(RenewToken(hmac, EVE, 5, done)))
    assert refused.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    broker.clock.advance(6)
    controller.change_tokens(SweepTokens())
    other = create(controller)
    assert controller.image.tokens == {other.token_id: other}
    broker.stop()


def test_other_brokers_have_a_token_with_their_next_image(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Wire(), WithTokens)
    first, second = (cluster.brokers[node_id].controller for node_id in (1, 2))
    token = wait(lambda done: first.change_tokens(CreateToken(ANNA, ANNA, (), -1, done)))
    eventually(lambda: second.image.tokens == {token.token_id: token})
    refused = wait(lambda done: second.change_tokens(CreateToken(ANNA, ANNA, (), -1, done)))
    assert refused.code is ErrorCode.NOT_CONTROLLER
    hmac = hmac_of(SECRET, token.token_id)
    wait(lambda done: first.change_tokens(ExpireToken(hmac, ANNA, -1, done)))
    eventually(lambda: second.image.tokens == {})
    for node_id in (3, 2, 1):
        cluster.brokers[node_id].stop()
