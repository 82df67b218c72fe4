"""UnregisterBroker (64): the cluster forgets a broker that is gone for good.

The controller does it; `metadata/controller/unregistration.py` says what is removed. A broker that
is not known is BROKER_ID_NOT_REGISTERED.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.unregister_broker import Request


def handle(services: Services, call: Call[Request]) -> None:
    def done(error: KafkaError | None) -> None:
        if error is None:
            call.answer(
                messages.unregister_broker.Response(error_code=ErrorCode.NONE, error_message=None)
            )
        else:
            call.fail(error.code, error.message)

    services.controller.unregister_broker(call.message.broker_id, done)
