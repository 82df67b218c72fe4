"""InitProducerId (22): a producer asks for its identity.

Without a transactional id a producer gets an id that nobody had before, at epoch 0, whatever id and
epoch it brings along. Ids come from the controller in blocks, so most requests are answered at once
and one in a thousand from the controller's thread.

With a transactional id the answer is a refusal, since this broker has no transactions
(`transactions.py`). A client meets it, with the reason, in FindCoordinator before it comes here.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply
from kbroker.handlers.transactions import refusal
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0
_SINCE_CURRENT_ID: Final = 3


class Asked(NamedTuple):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int


def decode(request: ColdRequest) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.INIT_PRODUCER_ID, version))
    transactional_id = reader.nullable_string()
    timeout_ms = reader.int32()
    producer_id, epoch = NO_PRODUCER, NO_EPOCH
    if version >= _SINCE_CURRENT_ID:
        producer_id, epoch = reader.int64(), reader.int16()
    reader.tags()
    return Asked(transactional_id, timeout_ms, producer_id, epoch)


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    if (asked.producer_id == NO_PRODUCER) != (asked.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and an epoch come together")
    if asked.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if asked.transactional_id is not None:
        raise KafkaError(refusal(request))
    with Reply(request, failure) as reply:
        services.producer_ids.generate(partial(_answer, request.api_version, reply))


def _answer(version: int, reply: Reply, result: int | KafkaError) -> None:
    if isinstance(result, KafkaError):
        reply.fail(result.code)
    else:
        reply.send(lambda: encode(version, ErrorCode.NONE, result, _FIRST_EPOCH))


def encode(version: int, code: ErrorCode, producer_id: int, epoch: int) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.INIT_PRODUCER_ID, version))
    out.int32(0)  # throttle time
    out.int16(code)
    out.int64(producer_id)
    out.int16(epoch)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(request.api_version, code, NO_PRODUCER, NO_EPOCH)
