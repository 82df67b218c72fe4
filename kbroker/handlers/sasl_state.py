"""SaslHandshake (17) and SaslAuthenticate (36) of a client that has authenticated, or need not.

Both are answered with ILLEGAL_SASL_STATE, and the connection stays open. What they are for is done
before a channel is open: see `authentication.py`.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import sasl_authenticate, sasl_handshake


def handle_handshake(services: Services, call: Call[sasl_handshake.Request]) -> None:
    call.fail(ErrorCode.ILLEGAL_SASL_STATE)


def handle_authenticate(services: Services, call: Call[sasl_authenticate.Request]) -> None:
    call.fail(
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
