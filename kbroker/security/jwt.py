"""Whether a bearer token lets its user in: its signature and its claims (JWT, RFC 7519, RFC 8725).

As Apache Kafka 4.3's BrokerJwtValidator: `exp` and `iat` must be there, `nbf` may be, each with a
skew; `aud` and `iss` are looked at if the configuration names them; the user is the claim
`sub.claim.name`, and the scope a text or a list of texts. Times are seconds, whole or not, and end
with the year 9999. `TokenError` says what is wrong, for the log alone, with nothing of the token.

Pure functions on values; any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kbroker.limits import OAUTH_TOKEN_BYTES_MAX, USER_NAME_BYTES_MAX
from kbroker.security.jwks import KeySet
from kbroker.security.jws import TokenError, is_signed, parse_jws, parse_object

_MS_PER_S: Final = 1000
_LATEST_S: Final = 253_402_300_799  # the end of the year 9999
_SCOPES_MAX: Final = 1_000
_LONG: Final = f"it has more than {OAUTH_TOKEN_BYTES_MAX} characters"


class Claims(NamedTuple):
    """What is asked of the claims of a token; times in seconds."""

    subject: str = "sub"
    scope: str = "scope"
    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_s: int = 30


class Accepted(NamedTuple):
    """A token that is accepted, until its `exp`, of the wall clock."""

    user: str
    expires_ms: int


# Of the moment; the second is called with the kid of a key that is not there.
KeysNow = Callable[[], KeySet | None]
Missing = Callable[[str | None], None]


class JwtValidator(NamedTuple):
    claims: Claims
    keys: KeysNow
    missing: Missing
    wall_ms: Callable[[], int]

    def accept(self, token: str) -> Accepted:
        """TokenError: why not."""
        if len(token) > OAUTH_TOKEN_BYTES_MAX:
            raise TokenError(_LONG)
        jws = parse_jws(token)
        keys = self.keys()
        if keys is None:
            self.missing(jws.key_id)
            raise TokenError("the keys that sign tokens could not be fetched yet")
        candidates = keys.candidates(jws)
        if not candidates:
            self.missing(jws.key_id)
            raise TokenError("the key that its kid and algorithm name is not known")
        if not any(is_signed(jws, key.public) for key in candidates):
            raise TokenError("its signature is wrong")
        return accepted(parse_object(jws.payload, "its payload"), self.claims, self.wall_ms())


def accepted(payload: dict[str, Any], claims: Claims, now_ms: int) -> Accepted:
    """Of a payload whose signature is right."""
    now_s, skew_s = now_ms / _MS_PER_S, claims.skew_s
    expires_s, issued_s = _time(payload, "exp"), _time(payload, "iat")
    if expires_s is None or issued_s is None:
        raise TokenError("it lacks exp or iat")
    if expires_s + skew_s <= now_s:
        raise TokenError("it has expired")
    if issued_s - skew_s > now_s or issued_s > expires_s:
        raise TokenError("it was issued in the future, or after its end")
    not_before_s = _time(payload, "nbf")
    if not_before_s is not None and (not_before_s - skew_s > now_s or not_before_s > expires_s):
        raise TokenError("it is not valid yet, or begins after its end")
    if claims.audiences and claims.audiences.isdisjoint(_texts(payload, "aud")):
        raise TokenError("it is for another audience")
    if claims.issuer is not None and payload.get("iss") != claims.issuer:
        raise TokenError("it is of another issuer")
    if claims.scope in payload:
        _texts(payload, claims.scope)
    return Accepted(_user(payload, claims.subject), int(expires_s * _MS_PER_S))


def _user(payload: dict[str, Any], name: str) -> str:
    user = payload.get(name)
    if not isinstance(user, str) or not user.strip():
        raise TokenError("its subject is no text")
    try:
        size = len(user.encode())
    except UnicodeEncodeError:
        raise TokenError("its subject is no UTF-8") from None
    if size > USER_NAME_BYTES_MAX or "\0" in user:
        raise TokenError("its subject is too long, or has a NUL")
    return user


def _time(payload: dict[str, Any], name: str) -> float | None:
    found = payload.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenError(f"{name} is no number")
    if not 0 <= found <= _LATEST_S or not math.isfinite(found):
        raise TokenError(f"{name} is no time")
    return found


def _texts(payload: dict[str, Any], name: str) -> list[str]:
    """Of a claim that is a text or a list of texts."""
    found = payload.get(name)
    listed: list[Any] = found if isinstance(found, list) else [found]
    if len(listed) > _SCOPES_MAX or not all(isinstance(each, str) for each in listed):
        raise TokenError(
            f"{'aud' if name == 'aud' else 'its scope'} is no text and no list of them"
        )
    return listed
