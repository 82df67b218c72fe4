"""Bearer tokens and the keys that sign them, as an authorization server makes both.

signer = Signer("RS256", "key-1")
signer.token(sub="alice", exp=...)        # signed
key_set(signer, other)                    # the JSON of their public keys
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

HASHES: Mapping[str, Any] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
CURVES: Mapping[str, Any] = {
    "ES256": (ec.SECP256R1, "P-256", 32),
    "ES384": (ec.SECP384R1, "P-384", 48),
    "ES512": (ec.SECP521R1, "P-521", 66),
}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def part(fields: Any) -> str:
    return encoded(json.dumps(fields).encode())


@lru_cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


class Signer:
    def __init__(self, algorithm: str = "RS256", key_id: str | None = "k", number: int = 0) -> None:
        self.algorithm, self.key_id = algorithm, key_id
        self._key: Any = (
            ec.generate_private_key(CURVES[algorithm][0]())
            if algorithm in CURVES
            else rsa_key(number)
        )

    @property
    def public(self) -> Any:
        return self._key.public_key()

    @property
    def jwk(self) -> dict[str, Any]:
        numbers = self.public.public_numbers()
        kid = {} if self.key_id is None else {"kid": self.key_id}
        if self.algorithm in CURVES:
            _, curve, size = CURVES[self.algorithm]
            x, y = (encoded(each.to_bytes(size, "big")) for each in (numbers.x, numbers.y))
            return {"kty": "EC", "crv": curve, "x": x, "y": y, **kid}
        modulus, exponent = (
            encoded(each.to_bytes((each.bit_length() + 7) // 8, "big"))
            for each in (numbers.n, numbers.e)
        )
        return {"kty": "RSA", "n": modulus, "e": exponent, **kid}

    def sign(self, signed: bytes) -> bytes:
        digest = HASHES[self.algorithm[2:]]()
        if self.algorithm in CURVES:
            halves = decode_dss_signature(self._key.sign(signed, ec.ECDSA(digest)))
            size = CURVES[self.algorithm][2]
            return b"".join(half.to_bytes(size, "big") for half in halves)
        padded: Any = padding.PKCS1v15()
        if self.algorithm.startswith("PS"):
            padded = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return bytes(self._key.sign(signed, padded, digest))

    def token(self, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        kid = {} if self.key_id is None else {"kid": self.key_id}
        head = {"alg": self.algorithm, **kid, **(header or {})}
        signed = f"{part(head)}.{part(claims)}"
        return f"{signed}.{encoded(self.sign(signed.encode()))}"


def key_set(*signers: Signer, more: Iterable[Any] = ()) -> bytes:
    return json.dumps({"keys": [*(each.jwk for each in signers), *more]}).encode()


def unsecured(**claims: Any) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."
