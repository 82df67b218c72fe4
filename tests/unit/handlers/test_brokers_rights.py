"""What another broker may do that has ClusterAction on the cluster and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from kbroker.cluster.given_producer_ids import GivenProducerIds
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.handlers.registry import REGISTRY
from kbroker.metadata.image import BrokerImage
from kbroker.protocol import messages
from kbroker.security.rights import Operation, Resource
from kbroker.security.session import Session
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, FakeRequest
from tests.unit.handlers.test_transactions import FIRST, PAY, Served

DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ClusterAction:
    """Everyone has this right alone."""

    def authorize(
        self,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool = False,
    ) -> Collection[Resource]:
        return [] if operation is Operation.CLUSTER_ACTION else resources

    def operations(self, *_: object) -> Callable[[str], int]:
        return lambda name: 0

    def authorize_by_type(self, *_: object) -> bool:
        return False


@pytest.fixture
def served() -> Served:
    """With an open transaction in a partition of `orders`."""
    served = Served()
    served.init()
    assert served.add(3) == [0]
    served.broker.services.authorizer = ClusterAction()
    return served


def listed(served: Served) -> list[str]:
    answer = served.ask(ApiKey.LIST_TRANSACTIONS, 2)
    return [each.transactional_id for each in answer.transaction_states]


def described(served: Served) -> Any:
    answer = served.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[PAY])
    return answer.transaction_states[0]


def test_a_broker_sees_all_transactions(served: Served) -> None:
    """One that it does not see is over, as far as it knows, and it aborts what is left of it."""
    served.client_id = CLIENT_ID
    assert listed(served) == [PAY]
    assert described(served).error_code == 0
    assert [each.topic for each in described(served).topics] == ["orders"]


def test_a_client_with_a_brokers_right_has_no_other(served: Served) -> None:
    assert listed(served) == []
    assert described(served).error_code == DENIED


def test_on_a_listener_of_clients_no_connection_is_a_brokers(served: Served) -> None:
    body = messages.list_transactions.Request(state_filters=[], producer_id_filters=[]).encode(2)
    request = FakeRequest(
        ApiKey.LIST_TRANSACTIONS, 2, body, client_id=CLIENT_ID, listener="CLIENTS"
    )
    REGISTRY.dispatch(served.broker.services, request)
    answer = messages.list_transactions.Response.decode(request.answer or b"", 2)
    assert answer.transaction_states == []


def test_a_broker_adds_partitions_for_its_clients(served: Served) -> None:
    """It has asked for their rights itself."""
    assert served.add(4, FIRST, ("orders", 1)) == [0]


def test_a_client_needs_its_own_right_to_a_topic(served: Served) -> None:
    assert served.add(3, FIRST, ("orders", 1)) == [DENIED]


@pytest.mark.parametrize(("client_id", "code"), [(CLIENT_ID, 0), ("c", 31)])
def test_producer_ids_of_a_broker(served: Served, client_id: str, code: int) -> None:
    served.client_id = client_id
    answer = served.ask(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=0)
    assert answer.error_code == code


def test_a_broker_asks_for_producer_ids_as_itself() -> None:
    """An envelope would need a principal, and there is no client."""
    sent: list[tuple[int, int]] = []
    given: list[int | KafkaError] = []
    broker = FakeBroker()
    controller: Any = broker.controller
    controller.active = False
    image = controller.image.with_brokers([BrokerImage(1, "h", 1, envelope_version=0)])
    controller.image = replace(image, controller_id=1)

    class Peers:
        def forward(self, broker: Any, key: int, version: int, body: bytes, done: Any) -> None:
            sent.append((key, version))
            response = messages.init_producer_id.Response(
                error_code=0, producer_id=5, producer_epoch=0
            )
            done(response.encode(version))

    peers: Any = Peers()
    GivenProducerIds(lambda: controller, peers).generate(given.append)
    assert sent == [(ApiKey.INIT_PRODUCER_ID, 0)] and given == [5]


def test_a_broker_creates_topics_of_its_own(served: Served) -> None:
    table = messages.create_topics
    for client_id, code in (("c", ErrorCode.TOPIC_AUTHORIZATION_FAILED), (CLIENT_ID, 0)):
        request = table.Request(
            topics=[
                table.Topic(
                    name="x", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            timeout_ms=1_000,
        )
        asked = FakeRequest(ApiKey.CREATE_TOPICS, 7, request.encode(7), client_id=client_id)
        REGISTRY.dispatch(served.broker.services, asked)
        answer = table.Response.decode(asked.answer or b"", 7)
        assert [each.error_code for each in answer.topics] == [code]
