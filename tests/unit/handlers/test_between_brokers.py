"""What brokers of a cluster say to each other: requests handed on, and the controller's image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.handlers.topic_creation import topic_creator
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller.broker_messages import (
    decode_answer,
    encode_update,
    response_of,
)
from kbroker.metadata.controller.decisions import NewTopic, TopicResult
from kbroker.metadata.controller.image_updates import (
    NOTHING,
    SHUTDOWN_KEY,
    SHUTDOWN_VERSION,
    UPDATE_KEY,
    UPDATE_VERSION,
    ImageAnswer,
    ImageUpdate,
)
from kbroker.metadata.controller.update_parts import PartsReceived, UpdateWays
from kbroker.metadata.image import NO_CONTROLLER, BrokerImage, ClusterImage
from kbroker.protocol.messages import controlled_shutdown, create_topics
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition
from tests.unit.handlers import test_alter_configs as configs
from tests.unit.handlers.support import NODE_ID, FakeBroker, answer_of
from tests.unit.handlers.test_alter_configs import ask as alter
from tests.unit.handlers.test_partitions import grow

UPDATE = ImageUpdate(
    2, 7, 55, NOTHING, 9, ClusterDelta.between(ClusterImage(), ClusterImage(cluster_id="c"))
)
INSIDE = {"client_id": CLIENT_ID}
ANSWER = ImageAnswer(ErrorCode.NONE, (TopicPartition("t", 3),))


class FakePeers:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int, bytes]] = []
        self.answer: bytes | KafkaError = b"whatever"
        self.parts = PartsReceived()
        self.then: Callable[[], None] = lambda: None

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        self.asked.append((broker.node_id, api_key, version, body))
        self.then()
        done(self.answer)


@pytest.fixture
def broker() -> FakeBroker:
    """One of two, and not the controller."""
    made = FakeBroker(brokers=2)
    made.services.peers = FakePeers()
    made.controller.active = False
    made.controller.image = replace(made.controller.image, controller_id=NODE_ID + 1)
    return made


def peers(broker: FakeBroker) -> FakePeers:
    assert isinstance(broker.services.peers, FakePeers)
    return broker.services.peers


def code_of(broker: FakeBroker, **fields: str) -> ErrorCode:
    (result,) = broker.call(grow(3, ("t", 2)), **fields).results
    return ErrorCode(result.error_code)


def test_a_request_for_the_controller_alone_is_forwarded_unchanged(broker: FakeBroker) -> None:
    request = broker.ask(grow(3, ("t", 2)))
    assert request.answer == b"whatever"
    assert peers(broker).asked == [(NODE_ID + 1, ApiKey.CREATE_PARTITIONS, 3, request.body)]


def test_the_outcome_of_a_forwarded_request_may_be_unknown(broker: FakeBroker) -> None:
    peers(broker).answer = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    assert code_of(broker) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER], ids=["given up", "not sent"]
)
def test_the_next_controller_is_asked_once(code: ErrorCode) -> None:
    broker = FakeBroker(brokers=4)
    asked = broker.services.peers = FakePeers()
    broker.controller.active = False
    asked.answer = KafkaError(code)

    def elect_the_next() -> None:
        broker.controller.image = replace(
            broker.controller.image, controller_id=NODE_ID + 1 + len(asked.asked)
        )

    elect_the_next()
    asked.then = elect_the_next
    assert code_of(broker) is code
    assert [node_id for node_id, *_ in asked.asked] == [NODE_ID + 1, NODE_ID + 2]


def test_the_next_controller_may_be_the_broker_that_handed_it_on(broker: FakeBroker) -> None:
    asked = peers(broker)
    asked.answer = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def be_elected() -> None:
        broker.controller.image = replace(broker.controller.image, controller_id=NODE_ID)
        asked.then = lambda: setattr(asked, "answer", b"done")

    asked.then = be_elected
    assert broker.ask(grow(3, ("t", 2))).answer == b"done"
    assert [node_id for node_id, *_ in asked.asked] == [NODE_ID + 1, NODE_ID]


def test_a_request_that_cannot_be_read_closes_its_connection(broker: FakeBroker) -> None:
    request = broker.send(ApiKey.CREATE_PARTITIONS, 3, b"\xff")
    assert request.closed and not peers(broker).asked


def test_a_request_that_comes_from_a_broker_is_not_forwarded_again(broker: FakeBroker) -> None:
    assert code_of(broker, client_id=CLIENT_ID) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not peers(broker).asked


def test_a_client_that_calls_itself_a_broker_is_one_of_the_clients(broker: FakeBroker) -> None:
    peers(broker).answer = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    named = {"client_id": CLIENT_ID, "listener": "OUTSIDE"}
    assert code_of(broker, **named) is ErrorCode.REQUEST_TIMED_OUT
    assert len(peers(broker).asked) == 1
    broker.controller.active = True
    another = (configs.BROKER, str(NODE_ID + 1), [("log.retention.ms", 0, "5")])
    asked = alter(configs.INCREMENTAL, 1, another)
    refused, done = (broker.call(asked, **each).responses for each in (named, INSIDE))
    assert [each.error_code for each in (*refused, *done)] == [
        ErrorCode.INVALID_REQUEST, ErrorCode.NONE,
    ]  # fmt: skip


def test_the_controller_and_a_broker_alone_decide_themselves(broker: FakeBroker) -> None:
    broker.controller.active = True
    assert code_of(broker) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alone = FakeBroker()
    alone.controller.active = False
    assert code_of(alone) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not peers(broker).asked


@pytest.mark.parametrize("controller", [NO_CONTROLLER, NODE_ID, 99])
def test_without_a_controller_the_client_asks_again(broker: FakeBroker, controller: int) -> None:
    broker.controller.image = replace(broker.controller.image, controller_id=controller)
    assert code_of(broker) is ErrorCode.NOT_CONTROLLER
    assert not peers(broker).asked


def test_the_image_of_the_controller_is_followed_and_answered(broker: FakeBroker) -> None:
    request = broker.send(UPDATE_KEY, UPDATE_VERSION, encode_update(UPDATE))
    assert broker.controller.followed == [UPDATE]
    assert request.answer == response_of(ANSWER).encode(UPDATE_VERSION)
    assert decode_answer(Reader(request.answer, flexible=True)) == ANSWER


def sent_in_parts(broker: FakeBroker, update: ImageUpdate = UPDATE) -> list[ImageAnswer]:
    ways = UpdateWays(whole_bytes_max=0, part_bytes=10)
    requests = [
        broker.send(UPDATE_KEY, version, body)
        for version, body in ways.requests(NODE_ID, update, encode_update(update))
    ]
    assert len(requests) > 2
    return [decode_answer(Reader(request.answer or b"", flexible=True)) for request in requests]


def test_an_image_in_parts_is_followed_with_the_last_one(broker: FakeBroker) -> None:
    broker.controller.broker_epoch = UPDATE.broker_epoch
    *first, last = sent_in_parts(broker)
    assert {*first} == {ImageAnswer(ErrorCode.NONE)}
    assert broker.controller.followed == [UPDATE]
    assert last == ANSWER


def test_parts_for_another_start_of_this_broker_are_not_kept(broker: FakeBroker) -> None:
    broker.controller.broker_epoch = UPDATE.broker_epoch + 1
    assert {*sent_in_parts(broker)} == {ImageAnswer(ErrorCode.STALE_BROKER_EPOCH)}
    assert not broker.controller.followed


def test_a_whole_image_ends_one_that_came_in_part(broker: FakeBroker) -> None:
    broker.controller.broker_epoch = UPDATE.broker_epoch
    ways = UpdateWays(whole_bytes_max=0, part_bytes=10)
    (version, first), second, *_ = ways.requests(NODE_ID, UPDATE, encode_update(UPDATE))
    broker.send(UPDATE_KEY, version, first)
    broker.send(UPDATE_KEY, UPDATE_VERSION, encode_update(UPDATE))
    answer = broker.send(UPDATE_KEY, *second).answer
    assert decode_answer(Reader(answer or b"", flexible=True)) == ImageAnswer(
        ErrorCode.INVALID_UPDATE_VERSION
    )


@pytest.mark.parametrize(
    "outcome", [[TopicPartition("t", 3)], [], KafkaError(ErrorCode.STALE_BROKER_EPOCH)]
)
def test_a_stopping_broker_gets_the_partitions_that_it_still_leads(
    broker: FakeBroker, outcome: list[TopicPartition] | KafkaError
) -> None:
    broker.controller.leads_still = outcome
    asked = controlled_shutdown.Request(broker_id=7, broker_epoch=55).encode(SHUTDOWN_VERSION)
    request = broker.send(SHUTDOWN_KEY, SHUTDOWN_VERSION, asked)
    assert broker.controller.stopping == [(7, 55)]
    assert request.answer is not None
    response = controlled_shutdown.Response.decode(request.answer, SHUTDOWN_VERSION)
    error, left = response.error_code, response.remaining_partitions
    if isinstance(outcome, KafkaError):
        assert (error, left) == (outcome.code, [])
    else:
        assert error == ErrorCode.NONE
        assert [(each.topic_name, each.partition_index) for each in left] == outcome


def test_elsewhere_it_is_no_api_at_all(broker: FakeBroker) -> None:
    body = encode_update(UPDATE)
    assert broker.send(UPDATE_KEY, UPDATE_VERSION, body, listener="OUTSIDE").closed
    assert broker.send(UPDATE_KEY, 8, body).closed
    assert FakeBroker().send(UPDATE_KEY, UPDATE_VERSION, body).closed
    assert broker.send(UPDATE_KEY, UPDATE_VERSION, body[:-1]).closed
    assert not broker.controller.followed
    assert UPDATE_KEY not in SERVED  # of which ApiVersions is made


def test_versions_are_answered_to_any_client(broker: FakeBroker) -> None:
    versions = broker.send(ApiKey.API_VERSIONS, 0, b"")
    assert UPDATE_KEY not in [each.api_key for each in answer_of(versions).api_keys]


@pytest.mark.parametrize(
    ("kind", "name", "handed_on"),
    [
        (configs.TOPIC, "t", True),
        (configs.BROKER, "", True),
        (configs.BROKER, str(NODE_ID), True),
        (configs.BROKER, str(NODE_ID + 1), False),
        (configs.LOGGER, str(NODE_ID), False),
    ],
)
def test_settings_of_the_cluster_are_handed_on_and_loggers_are_not(
    broker: FakeBroker, kind: int, name: str, handed_on: bool
) -> None:
    broker.ask(alter(configs.INCREMENTAL, 1, (kind, name, [("log.retention.ms", 0, "5")])))
    assert bool(peers(broker).asked) is handed_on


def test_a_topic_that_is_named_is_made_by_the_controller_that_is_another(
    broker: FakeBroker,
) -> None:
    outcomes: list[TopicResult] = []
    specs = [NewTopic("fresh", 3, 2, configs={"cleanup.policy": "compact"}), NewTopic("more")]
    peers(broker).answer = _created(("fresh", ErrorCode.NONE), ("more", ErrorCode.POLICY_VIOLATION))
    topic_creator(broker.services).create_topics(specs, False, outcomes.extend)
    assert [(each.name, each.error) for each in outcomes] == [
        ("fresh", ErrorCode.NONE),
        ("more", ErrorCode.POLICY_VIOLATION),
    ]
    ((node_id, key, version, body),) = peers(broker).asked
    assert (node_id, key) == (NODE_ID + 1, ApiKey.CREATE_TOPICS)
    fresh, more = create_topics.Request.decode(body, version).topics
    compacted = create_topics.Config(name="cleanup.policy", value="compact")
    assert fresh == create_topics.Topic(
        name="fresh", num_partitions=3, replication_factor=2, assignments=[], configs=[compacted]
    )
    assert more == create_topics.Topic(
        name="more", num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
    )


def test_topics_beyond_a_quota_are_not_asked_for_at_another_controller(
    broker: FakeBroker,
) -> None:
    """That one takes this broker for the client, so the client is charged here."""
    quota = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    left = [4]

    def charge(partitions: int) -> KafkaError | None:
        left[0] -= partitions
        return quota if left[0] < 0 else None

    outcomes: list[TopicResult] = []
    creator = topic_creator(broker.services)
    peers(broker).answer = _created(("fresh", ErrorCode.NONE))
    specs = [NewTopic("fresh", 3), NewTopic("more", 2)]
    creator.create_topics(specs, False, outcomes.extend, charge)
    assert [(each.name, each.error) for each in outcomes] == [
        ("fresh", ErrorCode.NONE),
        ("more", quota.code),
    ]
    ((_, _, version, body),) = peers(broker).asked
    assert [each.name for each in create_topics.Request.decode(body, version).topics] == ["fresh"]
    outcomes.clear()
    creator.create_topics([NewTopic("more")], False, outcomes.extend, charge)
    assert [each.error for each in outcomes] == [quota.code] and len(peers(broker).asked) == 1


def test_an_answer_without_a_topic_is_an_error_of_it(broker: FakeBroker) -> None:
    outcomes: list[TopicResult] = []
    peers(broker).answer = _created()
    topic_creator(broker.services).create_topics([NewTopic("fresh")], False, outcomes.extend)
    assert [each.error for each in outcomes] == [ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("answer", [b"\xff", KafkaError(ErrorCode.NOT_CONTROLLER)])
def test_a_topic_that_was_not_made_is_reported(
    broker: FakeBroker, answer: bytes | KafkaError
) -> None:
    outcomes: list[TopicResult] = []
    peers(broker).answer = answer
    topic_creator(broker.services).create_topics([NewTopic("fresh")], False, outcomes.extend)
    assert [each.name for each in outcomes] == ["fresh"]
    assert outcomes[0].error is not ErrorCode.NONE


def test_without_a_controller_no_topic_is_made(broker: FakeBroker) -> None:
    outcomes: list[TopicResult] = []
    broker.controller.image = replace(broker.controller.image, controller_id=NO_CONTROLLER)
    topic_creator(broker.services).create_topics([NewTopic("fresh")], False, outcomes.extend)
    assert [each.error for each in outcomes] == [ErrorCode.NOT_CONTROLLER]


def _created(*results: tuple[str, ErrorCode]) -> bytes:
    """CreateTopics 7 as its controller answers it."""
    writer = Writer(flexible=True)
    writer.int32(0)
    writer.array(len(results))
    for name, error in results:
        writer.string(name)
        writer.uuid(UUID(int=9))
        writer.int16(error)
        writer.string(None)
        writer.int32(3)
        writer.int16(1)
        writer.array(0)
        writer.tags()
    writer.tags()
    return writer.getvalue()
