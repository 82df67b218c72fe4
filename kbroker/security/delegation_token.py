"""A delegation token (KIP-48): who it acts for, who may renew it, and until when.

    HMAC       = HMAC-SHA-512(delegation.token.secret.key, token id)
    password   = HMAC in base64, with which a client logs in by SCRAM; its name is the token id

The HMAC is stored nowhere: each broker makes it of the secret, which is the same on all of them.
A client that has it acts as the owner, so it is in the answers to CreateDelegationToken and
DescribeDelegationToken and in nothing else that a broker writes.

Times are of the wall clock, in ms. Immutable values; any thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.security.session import Principal

USER: Final = "User"
_ID_BYTES: Final = 16
# Of memory, about: a token and its place in tables, and a principal of it without its name.
_TOKEN_BYTES: Final = 500
_PRINCIPAL_BYTES: Final = 200


class DelegationToken(NamedTuple):
    """`expires_ms` moves with renewals, up to `max_ms`."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_over(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """Renew it, or have it expire."""
        wanted = same(principal)
        return wanted == self.owner or wanted in self.renewers

    def is_own(self, principal: Principal) -> bool:
        """Whether it is described without a right to it."""
        wanted = same(principal)
        return wanted in (self.owner, self.requester) or wanted in self.renewers

    @property
    def size_bytes(self) -> int:
        """Of memory, about."""
        principals = (self.owner, self.requester, *self.renewers)
        return _TOKEN_BYTES + sum(_PRINCIPAL_BYTES + len(str(each)) for each in principals)

    @property
    def until_ms(self) -> int:
        return min(self.max_ms, self.expires_ms)


def same(principal: Principal) -> Principal:
    """How a token names it: however it has authenticated."""
    return Principal(principal.type, principal.name)


def new_token_id() -> str:
    """22 characters, as Apache Kafka makes them. None begins with '-', which command lines take
    for an option."""
    import base64
    import os

    while True:
        text = base64.urlsafe_b64encode(os.urandom(_ID_BYTES)).decode("ascii").rstrip("=")
        if text[0] != "-":
            return text


def hmac_of(secret: str, token_id: str) -> bytes:
    import hmac  # its libcrypto is not for a broker without tokens

    return hmac.digest(secret.encode(errors="replace"), token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    import base64

    return base64.b64encode(token_hmac).decode("ascii")
