"""A signed token in compact form (JWS, RFC 7515), and whether a key has signed it.

    base64url(header) . base64url(payload) . base64url(signature)

The algorithm must be one of ALGORITHMS and fit the type of the key: never "none", and never an
HMAC, for which a public key would be the secret. Of the header only `alg` and `kid` are used; a
header with `crit` is refused, and keys or addresses in it (`jwk`, `jku`, `x5u`) mean nothing.

Bytes from a socket are not trusted: sizes are bounded, base64 is strict, JSON has no name twice, no
NaN and no depth. `TokenError` for all that is no such token; its text has nothing of the token.

Needs `cryptography`, of the extra [security], for `is_signed` alone. Pure functions; any thread.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.limits import JSON_DEPTH_MAX, JWS_HEADER_BYTES_MAX, JWS_ID_CHARS_MAX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey

_PKCS1: Final = {"RS256": "sha256", "RS384": "sha384", "RS512": "sha512"}
_PSS: Final = {"PS256": "sha256", "PS384": "sha384", "PS512": "sha512"}
# By algorithm: the hash, the curve, and the bytes of each half of a signature.
_EC: Final = {
    "ES256": ("sha256", "secp256r1", 32),
    "ES384": ("sha384", "secp384r1", 48),
    "ES512": ("sha512", "secp521r1", 66),
}
ALGORITHMS: Final = (*_PKCS1, *_PSS, *_EC)
RSA: Final = frozenset({*_PKCS1, *_PSS})
CURVES: Final = {curve: algorithm for algorithm, (_, curve, _) in _EC.items()}

_PARTS: Final = 3
_QUOTE, _BACKSLASH = b'"\\'
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)


class TokenError(Exception):
    """The token is none, or is not accepted."""


class Jws(NamedTuple):
    algorithm: str
    key_id: str | None
    payload: bytes
    signed: bytes
    signature: bytes


def parse_jws(token: str) -> Jws:
    """Of an algorithm of ours; nothing is verified yet."""
    parts = token.split(".", _PARTS)
    if len(parts) != _PARTS:
        raise TokenError("a signed token has three parts")
    if len(parts[0]) > JWS_HEADER_BYTES_MAX:
        raise TokenError("its header is too long")
    header = parse_object(decoded(parts[0]), "its header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("its algorithm is not one of " + ", ".join(ALGORITHMS))
    if "crit" in header:
        raise TokenError("its header asks for an extension")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > JWS_ID_CHARS_MAX):
        raise TokenError("its kid is no short text")
    payload, signature = decoded(parts[1]), decoded(parts[2])  # both are ASCII, then
    signed = f"{parts[0]}.{parts[1]}".encode("ascii")
    return Jws(algorithm, key_id, payload, signed, signature)


def is_signed(jws: Jws, key: PublicKey) -> bool:
    """Whether this key, of the algorithm's type, has signed it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    try:
        if isinstance(key, rsa.RSAPublicKey):
            if jws.algorithm in _PKCS1:
                digest = _hash(_PKCS1[jws.algorithm])
                key.verify(jws.signature, jws.signed, padding.PKCS1v15(), digest)
                return True
            if jws.algorithm in _PSS:
                digest = _hash(_PSS[jws.algorithm])
                pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
                key.verify(jws.signature, jws.signed, pss, digest)
                return True
            return False
        name, curve, size = _EC.get(jws.algorithm, ("", "", 0))
        if not curve or key.curve.name != curve or len(jws.signature) != 2 * size:
            return False
        halves = (int.from_bytes(half, "big")
                  for half in (jws.signature[:size], jws.signature[size:]))  # fmt: skip
        key.verify(encode_dss_signature(*halves), jws.signed, ec.ECDSA(_hash(name)))
    except InvalidSignature:
        return False
    return True


def decoded(text: str) -> bytes:
    """Of base64url without padding."""
    if _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        raise TokenError("a part of it is no base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object."""
    if _depth(data) > JSON_DEPTH_MAX:
        raise TokenError(f"{what} is too deep")
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise TokenError(f"{what} is no JSON") from None
    if not isinstance(found, dict):
        raise TokenError(f"{what} is no JSON object")
    return found


def _depth(data: bytes) -> int:
    """The deepest nesting of brackets, but for those in texts, which could hide others."""
    depth = deepest = 0
    in_text = is_escaped = False
    for byte in data:
        if in_text:
            in_text = is_escaped or byte != _QUOTE
            is_escaped = byte == _BACKSLASH and not is_escaped
        elif byte == _QUOTE:
            in_text = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _hash(name: str) -> Any:
    from cryptography.hazmat.primitives import hashes

    made: dict[str, Any] = {
        "sha256": hashes.SHA256, "sha384": hashes.SHA384, "sha512": hashes.SHA512
    }  # fmt: skip
    return made[name]()
