"""EndTxn (26): a producer commits or aborts its transaction.

The version decides how epochs go, not the level of transaction.version: from version 5 on, each
outcome raises the producer's epoch, and the response has the pair for the next transaction.

Any handler thread; the answer comes when the outcome is in the log, not when markers are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.txn.image import NO_PAIR, Pair
from kbroker.errors import ErrorCode
from kbroker.handlers.transactions import coordinator_of, fencing_error, remembering
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.end_txn import Request

_FENCED_SINCE: Final = 2
_RAISES_SINCE: Final = 5
_CLIENT_VERSION, _RAISING_VERSION = 0, 2


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message

    def answer(code: ErrorCode, pair: Pair) -> None:
        code = fencing_error(code, call.version, _FENCED_SINCE)
        if code:
            pair = NO_PAIR
        call.answer(
            messages.end_txn.Response(
                error_code=code, producer_id=pair.producer_id, producer_epoch=pair.epoch
            )
        )

    coordinator = coordinator_of(services)
    coordinator.end(
        request.transactional_id,
        Pair(request.producer_id, request.producer_epoch),
        _RAISING_VERSION if call.version >= _RAISES_SINCE else _CLIENT_VERSION,
        remembering(coordinator, request.transactional_id, call, answer),
        committed=request.committed,
    )
