"""InitProducerId (22): a producer asks for its identity.

Without a transactional id a producer gets an id that no producer had before, at epoch 0, whatever
id and epoch it brings along. Ids come from the controller in blocks, so most requests are answered
at once and one in a thousand from the controller's thread.

With a transactional id the transaction coordinator answers: an id and an epoch that fence every
earlier producer of that transactional id. Where transactions are not served, the answer is a
refusal (`transactions.py`).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import is_a_broker, may_on_cluster
from kbroker.handlers.transactions import coordinator_of, fencing_error, refusal, remembering
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.coordinator.txn.image import Pair
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.init_producer_id import Request, Response

_NO_PRODUCER: Final = -1
_NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0
_FENCED_SINCE: Final = 4


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    if (request.producer_id == _NO_PRODUCER) != (request.producer_epoch == _NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and an epoch come together")
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.transactional_id is None:
        if not _may_be_idempotent(services, call):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        services.producer_ids.generate(partial(_answer, call))
        return
    if services.transactions is None:
        raise KafkaError(refusal(call.request))
    from kbroker.coordinator.txn.image import Pair  # what few brokers need

    coordinator = coordinator_of(services)
    coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        Pair(request.producer_id, request.producer_epoch),
        remembering(coordinator, request.transactional_id, call, partial(_answer_pair, call)),
    )


def _may_be_idempotent(services: Services, call: Call[Request]) -> bool:
    """A client that may write to some topic needs no right to the cluster (KIP-679)."""
    if services.authorizer is None:
        return True
    some_topic = Operation.WRITE, ResourceType.TOPIC, ApiKey.INIT_PRODUCER_ID
    if services.authorizer.authorize_by_type(call.session, *some_topic):
        return True
    # A broker asks for the ids of its transactional producers.
    return is_a_broker(services, call) or may_on_cluster(services, call, Operation.IDEMPOTENT_WRITE)


def _answer(call: Call[Request], result: int | KafkaError) -> None:
    if isinstance(result, KafkaError):
        call.fail(result.code)
    else:
        call.answer(
            messages.init_producer_id.Response(
                error_code=ErrorCode.NONE, producer_id=result, producer_epoch=_FIRST_EPOCH
            )
        )


def _answer_pair(call: Call[Request], code: ErrorCode, pair: Pair) -> None:
    if code:
        call.fail(fencing_error(code, call.version, _FENCED_SINCE))
        return
    call.answer(
        messages.init_producer_id.Response(
            error_code=code, producer_id=pair.producer_id, producer_epoch=pair.epoch
        )
    )


def is_for_controller(services: Services, message: Request) -> bool:
    """The controller gives producer ids; transactional ids are a coordinator's."""
    return message.transactional_id is None


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """Without the id and epoch that the request brought along."""
    return messages.init_producer_id.Response(error_code=code)
