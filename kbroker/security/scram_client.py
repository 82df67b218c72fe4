"""The client's side of a SCRAM login: between brokers, and of the command line.

`first`, then `final` with the server's answer, then `check` with its last one: a server that does
not know the password is found out there. A server that asks for more iterations than any has is
refused, since it could keep a client at work for hours.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from kbroker.limits import SCRAM_ITERATIONS_MIN, SCRAM_SERVER_ITERATIONS_MAX
from kbroker.security.scram import ScramMechanism, xor
from kbroker.security.scram_messages import (
    ScramMessageError,
    encode_base64,
    encode_name,
    parse_server_final,
    parse_server_first,
)
from kbroker.security.scram_server import new_nonce


class ScramClient:
    """One login; ScramMessageError: the server's message is none, or not of one that knows the
    password."""

    __slots__ = ("_bare", "_mechanism", "_nonce", "_password", "_signature")

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        *,
        is_token: bool = False,
        make_nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._mechanism, self._password = mechanism, password
        self._nonce = make_nonce()
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={encode_name(name)},r={self._nonce}{extension}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        server = parse_server_first(server_first)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise ScramMessageError("the server's nonce does not begin with the client's")
        if not SCRAM_ITERATIONS_MIN <= server.iterations <= SCRAM_SERVER_ITERATIONS_MAX:
            raise ScramMessageError(f"the server asks for {server.iterations} iterations")
        mechanism = self._mechanism
        salted_password = mechanism.salted(self._password, server.salt, server.iterations)
        without_proof = f"c=biws,r={server.nonce}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        client_key = mechanism.client_key(salted_password)
        proof = xor(client_key, mechanism.hmac(mechanism.digest(client_key), message))
        self._signature = mechanism.hmac(mechanism.server_key(salted_password), message)
        return f"{without_proof},p={encode_base64(proof)}".encode()

    def check(self, server_final: bytes) -> None:
        signature = parse_server_final(server_final)
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramMessageError("the server does not know the password")
