"""UnregisterBroker, its one version; the controller's tests have what becomes of the broker."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import BrokerImage
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, request_of, written

BODY = b"\x00\x00\x00\x02\x00"  # broker 2, no tagged fields


def ask(node_id: int) -> Any:
    return request_of(ApiKey.UNREGISTER_BROKER, 0, broker_id=node_id)


def outcome(answer: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(answer.error_code.value), answer.error_message


def test_a_broker_is_unregistered_once() -> None:
    broker = FakeBroker()
    image = broker.controller.image
    broker.controller.publish(image.with_brokers([*image.brokers.values(), BrokerImage(2)]))
    assert outcome(broker.call(ask(2))) == (ErrorCode.NONE, None)
    assert list(broker.controller.image.brokers) == list(image.brokers)
    unknown = (ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 2 is unknown")
    assert outcome(broker.call(ask(2))) == unknown


@pytest.mark.parametrize("node_id", [-1, -(2**31), 2**31 - 1])
def test_any_number_is_a_broker_that_is_not_there(node_id: int) -> None:
    code, words = outcome(FakeBroker().call(ask(node_id)))
    assert code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert words


@pytest.mark.parametrize("length", range(len(BODY)))
def test_a_request_that_is_cut_short_closes_the_connection(length: int) -> None:
    assert written(ask(2)) == BODY
    request = FakeBroker().send(ApiKey.UNREGISTER_BROKER, 0, BODY[:length])
    assert request.answer is None
    assert request.closed is not None and "malformed UnregisterBroker v0" in request.closed


def test_the_answer_comes_when_the_controller_is_done() -> None:
    broker = FakeBroker()
    image = broker.controller.image
    broker.controller.publish(image.with_brokers([*image.brokers.values(), BrokerImage(2)]))
    broker.controller.hold = True
    request = broker.ask(ask(2))
    assert request.answer is None
    broker.controller.release()
    assert outcome(answer_of(request)) == (ErrorCode.NONE, None)


def test_trouble_of_the_controller_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    trouble = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store failed.")
    monkeypatch.setattr(broker.controller, "unregister_broker", lambda node_id, done: done(trouble))
    assert outcome(broker.call(ask(2))) == (trouble.code, trouble.message)
