"""The keys with which an authorization server signs tokens (JWKS, RFC 7517), as a set of them.

Of a set those are used that are public keys of RSA (2048 to 8192 bits) or of one of three elliptic
curves, are for signatures, and say no other algorithm. A symmetric key is never used: its set is
public. Others are left out, since a server may have keys for other ends, too.

`candidates` has none for a `kid` that is not there. Immutable; any thread. Needs `cryptography`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.limits import JWKS_KEYS_MAX, JWS_ID_CHARS_MAX
from kbroker.security.jws import CURVES, RSA, TokenError, decoded, parse_object

if TYPE_CHECKING:
    from kbroker.security.jws import Jws, PublicKey

_RSA_BITS: Final = range(2048, 8192 + 1)
_EXPONENT_BITS_MAX: Final = 32
_TRIED_MAX: Final = 8
_CURVE_NAMES: Final = {"P-256": "secp256r1", "P-384": "secp384r1", "P-521": "secp521r1"}


class NoKeysError(TokenError):
    """It is a set of keys, and none of them can be used."""


class Key(NamedTuple):
    key_id: str | None
    algorithms: frozenset[str]
    public: PublicKey


class KeySet(NamedTuple):
    keys: tuple[Key, ...]

    def candidates(self, jws: Jws) -> list[Key]:
        """Those that may have signed it: by its kid, or by its algorithm if it has none."""
        fitting = (
            key
            for key in self.keys
            if jws.algorithm in key.algorithms and jws.key_id in (None, key.key_id)
        )
        return [key for key, _ in zip(fitting, range(_TRIED_MAX), strict=False)]


NO_KEYS: Final = KeySet(())


def parse_key_set(data: bytes) -> KeySet:
    """TokenError: it is no set of keys; NoKeysError: it has none that can be used."""
    listed = parse_object(data, "the set of keys").get("keys")
    if not isinstance(listed, list) or len(listed) > JWKS_KEYS_MAX:
        raise TokenError(f"the set has no list of at most {JWKS_KEYS_MAX} keys")
    found = [key for each in listed if (key := _key(each)) is not None]
    if not found:
        raise NoKeysError(f"of its {len(listed)} keys none is for signatures of RSA or EC")
    return KeySet(tuple(found))


def _key(fields: Any) -> Key | None:
    """None: it is left out."""
    if not isinstance(fields, dict) or fields.get("use", "sig") != "sig":
        return None
    operations, key_id = fields.get("key_ops", ["verify"]), fields.get("kid")
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > JWS_ID_CHARS_MAX):
        return None
    public: Any
    try:
        if fields.get("kty") == "RSA":
            public = _rsa(fields)
            algorithms = RSA
        elif fields.get("kty") == "EC":
            public = _ec(fields)
            algorithms = frozenset({CURVES[public.curve.name]})
        else:
            return None
    except (TokenError, ValueError, OverflowError):
        return None
    if "alg" in fields:
        if not isinstance(fields["alg"], str):
            return None
        algorithms &= {fields["alg"]}
    return Key(key_id, algorithms, public) if algorithms else None


def _rsa(fields: dict[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    modulus, exponent = _number(fields, "n"), _number(fields, "e")
    if modulus.bit_length() not in _RSA_BITS or exponent.bit_length() > _EXPONENT_BITS_MAX:
        raise TokenError("a key of RSA that is too short or too long")
    return RSAPublicNumbers(exponent, modulus).public_key()


def _ec(fields: dict[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    curves: dict[str, Any] = {
        "secp256r1": ec.SECP256R1, "secp384r1": ec.SECP384R1, "secp521r1": ec.SECP521R1
    }  # fmt: skip
    curve = curves.get(_CURVE_NAMES.get(str(fields.get("crv")), ""))
    if curve is None:
        raise TokenError("a curve that is not used here")
    numbers = ec.EllipticCurvePublicNumbers(_number(fields, "x"), _number(fields, "y"), curve())
    return numbers.public_key()


def _number(fields: dict[str, Any], name: str) -> int:
    text = fields.get(name)
    if not isinstance(text, str) or len(text) > 2 * _RSA_BITS[-1] // 8:
        raise TokenError(f"{name} of a key is no short text")
    return int.from_bytes(decoded(text), "big")
