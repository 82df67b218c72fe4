"""How a connection of ours authenticates: the bodies of SaslHandshake and SaslAuthenticate.

`Link` and `Connection` share it: `exchange` yields each request, as API, version and body, and is
sent the reader of its response. Nothing here does I/O. A refusal is a SASL_AUTHENTICATION_FAILED
that says what the server says; it is not tried again.

The result is how long the session lasts, if it ends before its connection does (KIP-368). A client
that has other requests to send then authenticates again before, on the same connection, by the same
exchange: `again_after_ms` says when.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.security.client_login import ClientLogin, ServerError
from kbroker.types import ApiKey

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION_MAX: Final = 2

# An earlier start is none for a server.
_PAUSE_MS: Final = 1_050
_BEGINS_AT: Final = 0.85

# Returns the lifetime of the session in ms; 0: as long as its connection.
LoginSteps = Generator[tuple[ApiKey, int, bytes], Reader, int]


def again_after_ms(lifetime_ms: int) -> int | None:
    """When to authenticate again, from the end of the exchange on; None: not at all."""
    if lifetime_ms <= 0:
        return None
    after_ms = max(round(lifetime_ms * _BEGINS_AT), _PAUSE_MS)
    return after_ms if after_ms < lifetime_ms else None


def exchange(login: ClientLogin, offered: Mapping[int, tuple[int, int]]) -> LoginSteps:
    """`offered`: the versions that the server has. KafkaError: it does not let us in."""
    lowest, highest = offered.get(ApiKey.SASL_AUTHENTICATE, (1, 0))
    if lowest > highest or offered[ApiKey.SASL_AUTHENTICATE][0] > _AUTHENTICATE_VERSION_MAX:
        raise _failed("the server does not offer SaslAuthenticate")
    version = min(highest, _AUTHENTICATE_VERSION_MAX)
    table = messages.sasl_handshake
    request = table.Request(mechanism=login.mechanism)
    body = request.encode(_HANDSHAKE_VERSION)
    reader = yield ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, body
    answer = table.Response.decode(reader.raw(reader.left), _HANDSHAKE_VERSION)
    if answer.error_code != ErrorCode.NONE:
        code = ErrorCode.for_code(answer.error_code)
        offers = ", ".join(answer.mechanisms) or "none"
        raise KafkaError(code, f"the server has the mechanisms {offers}, not {login.mechanism}")
    return (yield from _tokens(login, version))


def _tokens(login: ClientLogin, version: int) -> LoginSteps:
    table, tokens, lifetime_ms = messages.sasl_authenticate, login.tokens(), 0
    try:
        token = next(tokens)
        while True:
            body = table.Request(auth_bytes=token).encode(version)
            reader = yield ApiKey.SASL_AUTHENTICATE, version, body
            answer = table.Response.decode(reader.raw(reader.left), version)
            if answer.error_code != ErrorCode.NONE:
                code = ErrorCode.for_code(answer.error_code)
                raise KafkaError(code, answer.error_message or code.name)
            lifetime_ms = answer.session_lifetime_ms
            token = tokens.send(answer.auth_bytes)
    except StopIteration:
        return lifetime_ms
    except ServerError as error:
        raise _failed(str(error)) from None


def _failed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
