"""Changes of topics by clients with a quota: who is refused, and who waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import MorePartitions, NewTopic
from kbroker.protocol import messages
from kbroker.quota._client_quotas import ClientQuotas
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, FakeRequest
from tests.unit.metadata.controller.harness import OneBroker, wait

CREATE, DELETE, GROW = messages.create_topics, messages.delete_topics, messages.create_partitions
REFUSED = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def limited(broker: FakeBroker, rate: float = 1.0) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.load([("ANONYMOUS", None, [None, None, None, rate])])
    broker.services.quotas = quotas
    return quotas


def create(broker: FakeBroker, version: int, **sizes: int) -> FakeRequest:
    topics = [
        CREATE.Topic(
            name=name, num_partitions=size, replication_factor=1, assignments=[], configs=[]
        )
        for name, size in sizes.items()
    ]
    request = CREATE.Request(topics=topics, timeout_ms=1_000, validate_only=False)
    return broker.send(ApiKey.CREATE_TOPICS, version, request.encode(version))


def test_nothing_is_charged_without_a_quota() -> None:
    broker = FakeBroker()
    assert create(broker, 7, t=1_000).throttle_ms == 0
    limited(broker).load([("ANONYMOUS", None, [1.0, None, None, None])])
    assert create(broker, 7, u=1_000).throttle_ms == 0


@pytest.mark.parametrize("charges", [True, False])
def test_a_topic_is_refused_and_nothing_is_done_for_it(tmp_path: Path, charges: bool) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()
    paid: list[int] = []

    def charge(partitions: int) -> KafkaError | None:
        if charges and sum(paid) + partitions > 5:
            return REFUSED
        paid.append(partitions)
        return None

    specs = [NewTopic(name, 2, 1, None, {}) for name in ("a", "b", "c", "a b")]
    results = wait(lambda done: controller.create_topics(specs, False, done, charge))
    codes = [result.error for result in results]
    last = REFUSED.code if charges else ErrorCode.NONE
    assert codes[:3] == [ErrorCode.NONE, ErrorCode.NONE, last]
    assert codes[3] is ErrorCode.INVALID_TOPIC_EXCEPTION  # which costs nothing
    assert set(controller.image.topics) == ({"a", "b"} if charges else {"a", "b", "c"})
    paid.clear()
    wanted = [MorePartitions("a", 6, None), MorePartitions("b", 6, None)]
    results = wait(lambda done: controller.create_partitions(wanted, False, done, charge))
    assert [result.error for result in results] == [ErrorCode.NONE, last]
    assert len(controller.image.topics["b"].partitions) == (2 if charges else 6)
    paid.clear()
    results = wait(lambda done: controller.delete_topics(["a", "b", "none"], done, charge))
    assert [result.error for result in results[:2]] == (
        [last, ErrorCode.NONE] if charges else [ErrorCode.NONE] * 2
    )
    assert ("a" in controller.image.topics) == charges
    broker.stop()


def test_the_answer_has_the_time_and_the_client_waits() -> None:
    broker = FakeBroker()
    quotas = limited(broker)
    charges: list[object] = []
    original = broker.controller.create_topics

    def charged(specs: object, validate_only: bool, done: object, charge: object = None) -> None:
        charges.append(charge(12))  # type: ignore[operator]
        original(specs, validate_only, done)  # type: ignore[arg-type]

    broker.controller.create_topics = charged  # type: ignore[assignment,method-assign]
    request = create(broker, 5, t=12)  # eleven tokens were there
    assert charges == [None]
    assert 900 <= request.throttle_ms <= 1_000
    assert request.answer is not None
    assert CREATE.Response.decode(request.answer, 5).throttle_time_ms == request.throttle_ms
    request = create(broker, 6, u=1)
    assert isinstance(charges[1], KafkaError) and charges[1].code is REFUSED.code
    assert 800 <= request.throttle_ms <= 1_000
    assert quotas.figures()[0][0] == "mutation"


def test_topics_that_a_client_asks_for_are_charged_to_it() -> None:
    """Metadata creates them, and as CreateTopics of a strict version the controller may not."""
    broker = FakeBroker()
    charges: list[object] = []

    def charged(specs: object, validate_only: bool, done: object, charge: object = None) -> None:
        charges.extend(charge(1) for _ in specs)  # type: ignore[operator, attr-defined]

    broker.controller.create_topics = charged  # type: ignore[assignment,method-assign]
    quotas = limited(broker)
    table = messages.metadata
    topics = [table.MetadataRequestTopic(name=f"t{number}") for number in range(15)]
    request = table.Request(topics=topics, allow_auto_topic_creation=True)
    broker.send(ApiKey.METADATA, 4, request.encode(4))
    refused = [each for each in charges if each is not None]
    # Eleven tokens were there, and the one that ends them may be more than is left.
    assert len(charges) == 15 and len(refused) in (3, 4)
    assert all(isinstance(each, KafkaError) and each.code is REFUSED.code for each in refused)
    assert quotas.figures()[0][0] == "mutation"
