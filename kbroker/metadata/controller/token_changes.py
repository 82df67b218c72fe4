"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken (KIP-48), the removal of
tokens that are over, and tokens that another program has written into the store.

Place in the flow: the controller's thread. A change is written to the token's node, with a notice
in ZooKeeper, in one fenced multi, and then published with the image, by which it reaches the other
brokers. So a token logs in at this broker when its client has the answer, and at others one image
later.

A token is found by its HMAC, which is made of `delegation.token.secret.key` and is in no log. The
HMACs of all tokens are made when one is asked for first, and kept for those that are there.

The tools of Apache Kafka 3.9 may write tokens, too. They leave a notice; `notices_came` reads the
nodes that new notices name. Of notices the last NOTICES_KEPT_MAX are kept.

On the controller's thread only; no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.limits import (
    NOTICES_KEPT_MAX,
    TOKEN_PRINCIPALS_BYTES_MAX,
    TOKENS_BYTES_MAX,
    TOKENS_MAX,
    TOKENS_OF_OWNER_BYTES_MAX,
    TOKENS_OF_OWNER_MAX,
)
from kbroker.log_lines import first_few
from kbroker.metadata.controller.events import Notice
from kbroker.metadata.controller.records import INT64_MAX
from kbroker.metadata.controller.token_records import (
    CHANGES,
    NOTICE,
    TOKENS,
    decode_token,
    encode_token,
    is_token_id,
    notice_number,
    token_path,
)
from kbroker.metadata.store.base import (
    Create,
    Delete,
    MultiError,
    NoNodeError,
    Operation,
    Set,
)
from kbroker.outside_text import printable
from kbroker.security.delegation_token import DelegationToken, hmac_of, new_token_id, same

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.controller.nodes import MetadataNodes
    from kbroker.metadata.controller.propagation import Propagation
    from kbroker.metadata.controller.topic_changes import Settings
    from kbroker.metadata.image import ClusterImage
    from kbroker.metadata.store.base import MetadataStore, Node
    from kbroker.security.session import Principal

log = logging.getLogger("kbroker.controller")

SECRET: Final = "delegation.token.secret.key"
MAX_LIFETIME: Final = "delegation.token.max.lifetime.ms"
EXPIRY_TIME: Final = "delegation.token.expiry.time.ms"
_SWEPT_AT_ONCE_MAX: Final = 1_000
_TRIES_MAX: Final = 10  # of a removal, while another program removes the same

Changed = Mapping[str, DelegationToken | None]


class CreateToken(NamedTuple):
    """A token of `owner`, asked for by `requester`. A lifetime of 0 or less is the longest."""

    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    lifetime_ms: int
    done: Callable[[DelegationToken | KafkaError], None]

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class RenewToken(NamedTuple):
    """The token with this HMAC is to be valid for `period_ms` from now on; 0 or less: as long as
    it may be."""

    hmac: bytes
    principal: Principal
    period_ms: int
    done: Callable[[DelegationToken | KafkaError], None]

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class ExpireToken(NamedTuple):
    """The token with this HMAC is to be over after `period_ms`; below 0: it is removed at once,
    also if it is over. `done` gets it with its end."""

    hmac: bytes
    principal: Principal
    period_ms: int
    done: Callable[[DelegationToken | KafkaError], None]

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class SweepTokens(Notice):
    """Tokens that are over are to be removed."""


class TokensChanged(Notice):
    """A program has left a notice that a token changed."""


TokenEvent = CreateToken | RenewToken | ExpireToken | SweepTokens


class TokenChanges:
    """See the head of this file."""

    def __init__(
        self, propagation: Propagation, clock: Clock, config: Settings, *, has_notices: bool
    ) -> None:
        """`has_notices`: the store is ZooKeeper, which others write to."""
        self._propagation = propagation
        self._clock, self._config = clock, config
        self._has_notices = has_notices
        self._known: set[int] = set()  # the notices that were read
        self._index = _Index()

    def handle(self, nodes: MetadataNodes, event: TokenEvent) -> Callable[[], None]:
        """The answer to give. KafkaError: it is not done, and why."""
        if isinstance(event, SweepTokens):
            self._sweep(nodes)
            return lambda: None
        secret = self._config[SECRET]
        if not secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        self._index.follow(self._tokens)
        match event:
            case CreateToken():
                token = self._create(nodes, event)
            case RenewToken():
                token = self._renew(nodes, event, secret)
            case ExpireToken():
                token = self._expire(nodes, event, secret)
        return partial(event.done, token)

    @property
    def _tokens(self) -> Mapping[str, DelegationToken]:
        return self._propagation.image.tokens

    def _create(self, nodes: MetadataNodes, event: CreateToken) -> DelegationToken:
        now_ms = self._clock.wall_ms()
        longest_ms = self._config[MAX_LIFETIME]
        if event.lifetime_ms > 0:
            longest_ms = min(longest_ms, event.lifetime_ms)
        max_ms = min(now_ms + longest_ms, INT64_MAX)
        token = DelegationToken(
            new_token_id(),
            same(event.owner),
            same(event.requester),
            tuple(map(same, event.renewers)),
            now_ms,
            max_ms,
            min(max_ms, now_ms + self._config[EXPIRY_TIME]),
        )
        self._refuse_too_much(token)
        self._write(nodes, [Create(token_path(token.token_id), encode_token(token))], token)
        log.info("token %s of %s was created", token.token_id, printable(str(token.owner)))
        return token

    def _refuse_too_much(self, token: DelegationToken) -> None:
        """KafkaError: there is no room for it."""
        principals = (token.owner, token.requester, *token.renewers)
        size = sum(len(str(each).encode()) for each in principals)
        if size > TOKEN_PRINCIPALS_BYTES_MAX:
            reason = f"its principals have {size} bytes, and there is room for"
            raise _too_much(f"{reason} {TOKEN_PRINCIPALS_BYTES_MAX}")
        if len(self._tokens) >= TOKENS_MAX:
            raise _too_much(f"there are {TOKENS_MAX} tokens, the most")
        held = self._index.of_owner(token.owner)
        if held.tokens >= TOKENS_OF_OWNER_MAX:
            raise _too_much(f"its owner has {TOKENS_OF_OWNER_MAX} tokens, the most")
        if held.size_bytes + token.size_bytes > TOKENS_OF_OWNER_BYTES_MAX:
            room = f"with their principals, and there is room for {TOKENS_OF_OWNER_BYTES_MAX}"
            raise _too_much(f"the tokens of its owner take {held.size_bytes} bytes {room}")
        if self._index.size_bytes + token.size_bytes > TOKENS_BYTES_MAX:
            raise _too_much(f"all tokens take {self._index.size_bytes} bytes, the most")

    def _renew(self, nodes: MetadataNodes, event: RenewToken, secret: str) -> DelegationToken:
        """KafkaError: in the order of Apache Kafka 4.3."""
        longest_ms = self._config[EXPIRY_TIME]
        period_ms = min(longest_ms, event.period_ms) if event.period_ms > 0 else longest_ms
        token = self._of_hmac(event.hmac, secret)
        self._refuse_over(token)
        _refuse_others(token, event.principal)
        return self._set_expiry(nodes, token, period_ms, "renewed")

    def _expire(self, nodes: MetadataNodes, event: ExpireToken, secret: str) -> DelegationToken:
        """KafkaError: in the order of Apache Kafka 4.3, which is another one than of a renewal."""
        token = self._of_hmac(event.hmac, secret)
        _refuse_others(token, event.principal)
        if event.period_ms >= 0:
            self._refuse_over(token)
            return self._set_expiry(nodes, token, event.period_ms, "given another end")
        self._remove(nodes, [token])
        log.info("token %s of %s was removed", token.token_id, printable(str(token.owner)))
        return token._replace(expires_ms=self._clock.wall_ms())

    def _of_hmac(self, hmac: bytes, secret: str) -> DelegationToken:
        token_id = self._index.by_hmac(hmac, secret)
        token = None if token_id is None else self._tokens.get(token_id)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    def _refuse_over(self, token: DelegationToken) -> None:
        if token.is_over(self._clock.wall_ms()):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _set_expiry(
        self, nodes: MetadataNodes, token: DelegationToken, period_ms: int, words: str
    ) -> DelegationToken:
        expires_ms = min(token.max_ms, self._clock.wall_ms() + period_ms)
        after = token._replace(expires_ms=expires_ms)
        try:
            self._write(nodes, [Set(token_path(token.token_id), encode_token(after))], after)
        except MultiError as error:
            if not _is_gone(error, token_path(token.token_id)):
                raise
            # Another program has removed it meanwhile.
            self._publish({token.token_id: None})
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        log.info("token %s of %s was %s", token.token_id, printable(str(token.owner)), words)
        return after

    def _sweep(self, nodes: MetadataNodes) -> None:
        """Remove those that are over, some of them at a time."""
        now_ms = self._clock.wall_ms()
        over = [each for each in self._tokens.values() if each.is_over(now_ms)]
        for first in range(0, len(over), _SWEPT_AT_ONCE_MAX):
            self._remove(nodes, over[first : first + _SWEPT_AT_ONCE_MAX])
        if over:
            names = first_few([each.token_id for each in over])
            log.info("%d tokens were over, and were removed: %s", len(over), names)

    def _remove(self, nodes: MetadataNodes, tokens: Iterable[DelegationToken]) -> None:
        gone = [each.token_id for each in tokens]
        _delete(nodes, {token_path(each): self._notice(each) for each in gone})
        self._publish(dict.fromkeys(gone))

    def _write(
        self, nodes: MetadataNodes, operations: list[Operation], token: DelegationToken
    ) -> None:
        nodes.write([[*operations, *self._notice(token.token_id)]])
        self._publish({token.token_id: token})

    def _notice(self, token_id: str) -> list[Operation]:
        if not self._has_notices:
            return []
        return [Create(NOTICE, token_id.encode(), sequential=True)]

    def _publish(self, changed: Changed) -> None:
        image = self._propagation.image.with_tokens(changed)
        self._index.change(self._tokens, changed, image.tokens)
        self._propagation.publish(image)

    # --- what others have written -----------------------------------------------------------------

    def read_into(self, image: ClusterImage, store: MetadataStore) -> ClusterImage:
        """The image with all tokens of the store. One that cannot be read is left out: it does not
        log in, and the others do."""
        if self._has_notices:
            self._known = set(_notices(store))  # before the nodes: a later change is read again
        found: dict[str, DelegationToken] = {}
        with suppress(NoNodeError):
            for name, node in store.children_data(TOKENS).items():
                token = _decoded(f"{TOKENS}/{name}", node)
                if token is not None:
                    found[token.token_id] = token
        return image.with_all_tokens(found)

    def notices_came(self, nodes: MetadataNodes) -> bool:
        """Read the nodes that new notices name, and publish what they hold. True: that is all."""
        there = _notices(nodes.store)
        new = sorted(set(there) - self._known)
        self._known = set(there)
        named = {
            node.data.decode(errors="replace")
            for node in nodes.store.get_many([_notice_path(each) for each in new]).values()
        }
        paths = [token_path(each) for each in sorted(named) if is_token_id(each)]
        found = nodes.read(paths)
        changed: dict[str, DelegationToken | None] = {}
        for path in paths:
            token_id, node = path.rpartition("/")[2], found.get(path)
            token = None if node is None else _decoded(path, node)
            if token != self._tokens.get(token_id):
                changed[token_id] = token
        if changed:
            self._publish(changed)
            log.info("tokens have changed in the store: %s", first_few(sorted(changed)))
        many = there[: max(0, len(there) - NOTICES_KEPT_MAX)]
        _delete(nodes, {_notice_path(each): [] for each in many})
        self._known.difference_update(many)
        return True


class _Held(NamedTuple):
    """Of one owner."""

    tokens: int = 0
    size_bytes: int = 0


_NOTHING: Final = _Held()


class _Index:
    """What tokens are found by, kept up with the tokens that are published."""

    def __init__(self) -> None:
        self._seen: Mapping[str, DelegationToken] = {}
        self._secret = ""
        self._ids: dict[bytes, str] = {}  # by HMAC; some are of tokens that are gone
        self._missing: set[str] = set()  # whose HMAC is not made yet
        self._owners: dict[Principal, _Held] = {}
        self.size_bytes = 0

    def follow(self, tokens: Mapping[str, DelegationToken]) -> None:
        if tokens is not self._seen:
            self._seen = tokens
            self._owners, self.size_bytes = {}, 0
            for each in tokens.values():
                self._count(each, 1)
            self._ids, self._missing = {}, {*tokens}

    def change(
        self,
        before: Mapping[str, DelegationToken],
        changed: Changed,
        after: Mapping[str, DelegationToken],
    ) -> None:
        """Follow one change, in the time that it takes."""
        if before is not self._seen:
            return  # `follow` makes it good
        for token_id, token in changed.items():
            known = before.get(token_id)
            if known is not None:
                self._count(known, -1)
            if token is not None:
                self._count(token, 1)
                self._missing.add(token_id)
            else:
                self._missing.discard(token_id)
        self._seen = after

    def of_owner(self, owner: Principal) -> _Held:
        return self._owners.get(owner, _NOTHING)

    def _count(self, token: DelegationToken, times: int) -> None:
        size_bytes = times * token.size_bytes
        self.size_bytes += size_bytes
        held = self.of_owner(token.owner)
        if held.tokens + times:
            self._owners[token.owner] = _Held(held.tokens + times, held.size_bytes + size_bytes)
        else:
            del self._owners[token.owner]

    def by_hmac(self, hmac: bytes, secret: str) -> str | None:
        if secret != self._secret or len(self._ids) > 2 * len(self._seen) + _SWEPT_AT_ONCE_MAX:
            self._secret, self._ids, self._missing = secret, {}, {*self._seen}
        for token_id in self._missing:
            self._ids[hmac_of(secret, token_id)] = token_id
        self._missing.clear()
        return self._ids.get(hmac)


def _delete(nodes: MetadataNodes, beside: Mapping[str, list[Operation]]) -> None:
    """Delete these nodes and do the operations beside each, in few writes: a thousand tokens may be
    over at once. Nodes that another program has removed meanwhile are left out."""
    for left in reversed(range(_TRIES_MAX)):
        try:
            nodes.write([Delete(path), *more] for path, more in beside.items())
        except MultiError as error:
            if not left or not isinstance(error.cause, NoNodeError):
                raise
        else:
            return
        there = nodes.read(list(beside))
        beside = {path: more for path, more in beside.items() if path in there}


def _is_gone(error: MultiError, path: str) -> bool:
    """Whether it is this node that is not there, and not the folder of notices."""
    return isinstance(error.cause, NoNodeError) and error.cause.path == path


def _notices(store: MetadataStore) -> list[int]:
    """The numbers of those that are there, in their order."""
    try:
        found = map(notice_number, store.children(CHANGES))
    except NoNodeError:
        return []
    return sorted(number for number in found if number is not None)


def _notice_path(number: int) -> str:
    return f"{NOTICE}{number:010d}"


def _decoded(path: str, node: Node) -> DelegationToken | None:
    try:
        return decode_token(path, node.data)
    except DataDirectoryError as error:
        log.error("a token is left out: %s", error.message)
        return None


def _refuse_others(token: DelegationToken, principal: Principal) -> None:
    if not token.may_renew(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _too_much(message: str) -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)
