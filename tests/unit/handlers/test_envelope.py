"""Requests that are forwarded to the controller in envelopes, and by brokers without them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.default_principal_data.v0 import data as principal_data
from kio.serial import entity_reader

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import envelope
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.limits import KEPT_CLIENT_ID_CHARS_MAX
from kbroker.metadata.image import NO_ENVELOPE, BrokerImage
from kbroker.protocol import messages
from kbroker.protocol.messages.table import Message
from kbroker.security.rights import Operation
from kbroker.security.session import ANONYMOUS, Principal, Session, session_of
from kbroker.types import ApiKey
from tests.unit.handlers import test_alter_configs as configs
from tests.unit.handlers.support import NODE_ID, FakeBroker, FakeRequest
from tests.unit.handlers.test_alter_configs import ask as alter
from tests.unit.handlers.test_between_brokers import FakePeers
from tests.unit.handlers.test_partitions import grow
from tests.unit.handlers.test_rights import Denying

ALICE: Final = Session(Principal("User", "alice", by_token=True), "c1", "OUTSIDE", "2001:db8::7")
CONTROLLER: Final = NODE_ID + 1


def a_broker(*, active: bool, versions: tuple[int, int] = (0, 0)) -> FakeBroker:
    """One of two, of which CONTROLLER is the controller; what each takes."""
    broker = FakeBroker(brokers=2)
    broker.services.peers = FakePeers()
    broker.controller.active = active
    take(broker, *versions)
    broker.controller.image = replace(broker.controller.image, controller_id=CONTROLLER)
    if active:
        broker.services.node_id = CONTROLLER
    return broker


def take(broker: FakeBroker, *versions: int) -> None:
    image = broker.controller.image
    broker.controller.image = image.with_brokers(
        replace(each, envelope_version=version)
        for each, version in zip(image.brokers.values(), versions, strict=True)
    )


class ToController(FakePeers):
    """Requests arrive at the controller, as they would over a connection between brokers."""

    def __init__(self, controller: FakeBroker) -> None:
        super().__init__()
        self.controller = controller

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        self.asked.append((broker.node_id, api_key, version, body))
        request = self.controller.send(api_key, version, body, client_id=CLIENT_ID)
        done(request.answer or KafkaError(ErrorCode.REQUEST_TIMED_OUT, request.closed or ""))


def pair(versions: tuple[int, int]) -> tuple[FakeBroker, FakeBroker, ToController]:
    controller = a_broker(active=True, versions=versions)
    follower = a_broker(active=False, versions=versions)
    follower.services.peers = way = ToController(controller)
    return follower, controller, way


def creation(name: str = "fresh") -> Message:
    topic = messages.create_topics.Topic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return messages.create_topics.Request(topics=[topic])


def created(request: FakeRequest, version: int) -> list[ErrorCode]:
    assert request.answer is not None, request.closed
    response = messages.create_topics.Response.decode(request.answer, version)
    return [ErrorCode(each.error_code) for each in response.topics]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize(
    ("versions", "key"),
    [
        ((0, 0), ApiKey.ENVELOPE),
        # The controller takes none yet; then only the broker that forwards.
        ((0, NO_ENVELOPE), ApiKey.CREATE_TOPICS),
        ((NO_ENVELOPE, 0), ApiKey.ENVELOPE),
        ((NO_ENVELOPE, NO_ENVELOPE), ApiKey.CREATE_TOPICS),
    ],
)
def test_a_topic_is_created_through_another_broker(
    versions: tuple[int, int], key: ApiKey, version: int
) -> None:
    follower, controller, way = pair(versions)
    request = follower.send(ApiKey.CREATE_TOPICS, version, creation().encode(version))
    assert created(request, version) == [ErrorCode.NONE]
    assert controller.controller.image.topic("fresh") is not None
    assert [(node_id, api_key) for node_id, api_key, *_ in way.asked] == [(CONTROLLER, key)]


def test_the_controller_authorizes_the_client_and_not_the_broker() -> None:
    follower, controller, _ = pair((0, 0))
    controller.services.authorizer = authorizer = Denying(Operation.ALTER)
    request = follower.send(
        ApiKey.UNREGISTER_BROKER,
        0,
        messages.unregister_broker.Request(broker_id=1).encode(0),
        client_id="c1",
        peer_host="192.0.2.7",
    )
    response = messages.unregister_broker.Response.decode(request.answer or b"", 0)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [(session, operation) for session, operation, _ in authorizer.calls] == [
        # Of the envelope itself: the other broker's connection.
        (Session(ANONYMOUS, CLIENT_ID, "PLAINTEXT", "127.0.0.1"), Operation.CLUSTER_ACTION),
        (Session(ANONYMOUS, "c1", "PLAINTEXT", "192.0.2.7"), Operation.ALTER),
    ]
    assert CONTROLLER - 1 in controller.controller.image.brokers


def test_the_principal_in_the_envelope_is_authorized() -> None:
    controller = a_broker(active=True)
    controller.services.authorizer = authorizer = Denying(None)
    body = messages.unregister_broker.Request(broker_id=99).encode(0)
    inside = FakeRequest(ApiKey.UNREGISTER_BROKER, 0, body)
    request = controller.send(ApiKey.ENVELOPE, 0, envelope.sealed(inside, ALICE))
    assert request.answer is not None
    _, (session, operation, _) = authorizer.calls
    assert (session, operation) == (ALICE._replace(listener="PLAINTEXT"), Operation.ALTER)


def test_an_envelope_needs_the_right_of_a_broker() -> None:
    follower, controller, _ = pair((0, 0))
    controller.services.authorizer = Denying(Operation.CLUSTER_ACTION)
    request = follower.send(ApiKey.CREATE_TOPICS, 7, creation().encode(7))
    assert created(request, 7) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert controller.controller.image.topic("fresh") is None


def a_request(**fields: Any) -> FakeRequest:
    return FakeRequest(ApiKey.CREATE_TOPICS, 7, creation().encode(7), **fields)


@pytest.mark.parametrize("client_id", [None, "", "ärger"])
@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_a_sealed_request_comes_out_again(client_id: str | None, host: str) -> None:
    session = ALICE._replace(client_id=client_id, client_host=host)
    call: Any = FakeRequest(ApiKey.ENVELOPE, 0, b"")
    call.request, request = call, a_request(correlation_id=-5)
    sealed = envelope.sealed(request, session)
    call.message = messages.envelope.Request.decode(sealed, 0)
    inside = envelope.Forwarded(call)
    assert (inside.api_key, inside.api_version, inside.correlation_id, inside.body) == (
        request.api_key, request.api_version, -5, request.body,
    )  # fmt: skip
    assert inside.session == session._replace(listener="PLAINTEXT")
    assert (inside.client_id, inside.peer_host) == (client_id, host)


def test_a_principal_is_encoded_as_by_apache_kafka() -> None:
    data = messages.envelope.Request.decode(
        envelope.sealed(a_request(), ALICE), 0
    ).request_principal
    assert data is not None and data[:2] == b"\0\0"
    theirs, size = entity_reader(principal_data.DefaultPrincipalData)(data, 2)
    assert size == len(data) - 2
    assert (theirs.type_, theirs.name, theirs.token_authenticated) == ("User", "alice", True)


def sealed_in(**fields: Any) -> bytes:
    """An Envelope around a request, some of whose fields are others."""
    whole = messages.envelope.Request.decode(envelope.sealed(a_request(), ALICE), 0)
    for name, value in fields.items():
        setattr(whole, name, value)
    return whole.encode(0)


def header(key: int, version: int, tail: bytes = b"\xff\xff\0") -> bytes:
    return struct.pack(">hhi", key, version, 7) + tail


# With the codes of a controller of Apache Kafka 4.3.0 that was sent these bytes; it has no
# UpdateMetadata.
WRONG: Final = [
    ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_data": b"\0\x13\0\7\0"}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_data": header(ApiKey.CREATE_TOPICS, 7, b"\0\x09x")}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_data": header(ApiKey.CREATE_TOPICS, 7) + b"\xff"}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_data": header(ApiKey.CREATE_TOPICS, 99)}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_data": header(ApiKey.HEARTBEAT, 4)}, ErrorCode.INVALID_REQUEST),
    ({"request_data": header(ApiKey.PRODUCE, 9)}, ErrorCode.INVALID_REQUEST),
    ({"request_data": header(ApiKey.UPDATE_METADATA, 1002)}, ErrorCode.INVALID_REQUEST),
    ({"request_data": header(ApiKey.ENVELOPE, 0) + sealed_in()}, ErrorCode.INVALID_REQUEST),
    ({"request_data": header(999, 0)}, ErrorCode.UNSUPPORTED_VERSION),
    ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ({"request_principal": b"\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ({"request_principal": b"\0\1\1\1\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ({"request_principal": b"\0\0\5User"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ({"client_host_address": b""}, ErrorCode.INVALID_REQUEST),
    ({"client_host_address": b"abcde"}, ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("fields", "code"), WRONG)
def test_an_error_inside_is_the_error_of_that_envelope(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    request = a_broker(active=True).send(ApiKey.ENVELOPE, 0, sealed_in(**fields))
    assert request.closed is None
    response = messages.envelope.Response.decode(request.answer or b"", 0)
    assert (response.error_code, response.response_data) == (code, None)


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=80), principal=st.none() | st.binary(max_size=20))
def test_any_bytes_inside_are_answered(data: bytes, principal: bytes | None) -> None:
    broker = a_broker(active=True)
    request = broker.send(ApiKey.ENVELOPE, 0, sealed_in(request_data=data))
    other = broker.send(ApiKey.ENVELOPE, 0, sealed_in(request_principal=principal))
    assert request.answer is not None and other.answer is not None


def test_an_envelope_is_taken_on_the_brokers_listener_alone() -> None:
    broker = a_broker(active=True)
    assert broker.send(ApiKey.ENVELOPE, 0, sealed_in(), listener="OUTSIDE").closed
    assert broker.send(ApiKey.ENVELOPE, 1, sealed_in()).closed
    assert broker.send(ApiKey.ENVELOPE, 0, sealed_in()[:-3]).closed  # it is no Envelope at all
    alone = FakeBroker()
    assert alone.send(ApiKey.ENVELOPE, 0, sealed_in()).closed
    assert broker.controller.image.topic("fresh") is None
    versions = broker.send(ApiKey.API_VERSIONS, 3, b"\2a\2b\0")
    listed = messages.api_versions.Response.decode(versions.answer or b"", 3).api_keys
    assert ApiKey.ENVELOPE not in [each.api_key for each in listed]


def test_a_request_in_an_envelope_is_not_forwarded_again() -> None:
    broker = a_broker(active=False)
    request = broker.send(ApiKey.ENVELOPE, 0, sealed_in())
    response = messages.envelope.Response.decode(request.answer or b"", 0)
    assert response.error_code == ErrorCode.NONE
    assert isinstance(broker.services.peers, FakePeers)
    assert not broker.services.peers.asked


def test_a_client_id_means_nothing_once_every_broker_takes_envelopes() -> None:
    named = {"client_id": CLIENT_ID}
    another = (configs.BROKER, str(NODE_ID), [("log.retention.ms", 0, "5")])
    change = alter(configs.INCREMENTAL, 1, another)

    def outcome(versions: tuple[int, int]) -> tuple[ErrorCode, int]:
        """Of another broker's settings at the controller; and how often a broker forwards."""
        controller = a_broker(active=True, versions=versions)
        (answer,) = controller.call(change, **named).responses
        follower = a_broker(active=False, versions=versions)
        follower.ask(grow(3, ("t", 2)), **named)
        assert isinstance(follower.services.peers, FakePeers)
        return ErrorCode(answer.error_code), len(follower.services.peers.asked)

    assert outcome((0, 0)) == (ErrorCode.INVALID_REQUEST, 1)
    assert outcome((NO_ENVELOPE, 0)) == (ErrorCode.NONE, 0)
    assert outcome((0, NO_ENVELOPE)) == (ErrorCode.NONE, 0)


def test_settings_of_another_broker_are_altered_through_it() -> None:
    follower, controller, way = pair((0, 0))
    own = (configs.BROKER, str(NODE_ID), [("log.retention.ms", 0, "5")])
    (answer,) = follower.call(alter(configs.INCREMENTAL, 1, own)).responses
    assert answer.error_code == ErrorCode.NONE
    assert len(way.asked) == 1
    assert {name for _, name in controller.controller.image.configs} == {str(NODE_ID)}


def answered(error: ErrorCode, data: bytes | None) -> bytes:
    return messages.envelope.Response(response_data=data, error_code=error).encode(0)


@pytest.mark.parametrize(
    "answer",
    [
        answered(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None),
        answered(ErrorCode.NONE, None),
        answered(ErrorCode.NONE, b"\0\0"),
        answered(ErrorCode.NONE, struct.pack(">i", 8) + b"\0"),
        b"\xff",
        b"",
    ],
)
def test_an_answer_that_cannot_be_opened_is_an_error_of_the_request(answer: bytes) -> None:
    follower = a_broker(active=False)
    assert isinstance(follower.services.peers, FakePeers)
    follower.services.peers.answer = answer
    request = follower.send(ApiKey.CREATE_TOPICS, 7, creation().encode(7))
    assert created(request, 7) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_client_id_that_does_not_go_into_an_envelope_is_refused() -> None:
    """Bytes that are no text become three for one."""
    follower = a_broker(active=False)
    request = follower.send(
        ApiKey.CREATE_TOPICS, 7, creation().encode(7), client_id="\ufffd" * 32_767
    )
    assert created(request, 7) == [ErrorCode.INVALID_REQUEST]


def test_a_request_that_the_controller_would_not_read_is_not_forwarded() -> None:
    """Its connection would be closed, with the requests of others on it."""
    follower = a_broker(active=False)
    body = creation().encode(7)
    bound = len(envelope.sealed(a_request(client_id="test"), ALICE)) + 64
    outcomes = []
    for size in (bound + 100, 40):
        setting = f"socket.request.max.bytes={size}"
        follower.services.config = BrokerConfig.load(None, {}, [setting])
        request = follower.send(ApiKey.CREATE_TOPICS, 7, body)
        assert isinstance(follower.services.peers, FakePeers)
        outcomes.append((created(request, 7), len(follower.services.peers.asked)))
    (forwarded, refused) = outcomes
    assert forwarded == ([ErrorCode.UNKNOWN_SERVER_ERROR], 1)  # its answer is no envelope
    assert refused == ([ErrorCode.INVALID_REQUEST], 1)


def test_a_request_of_a_version_that_is_not_read_is_not_sealed() -> None:
    follower = a_broker(active=False)
    assert follower.send(ApiKey.CREATE_PARTITIONS, 3, b"\xff").closed
    assert isinstance(follower.services.peers, FakePeers)
    assert not follower.services.peers.asked


class AnswersLater(FakePeers):
    """The controller that is asked; `done` takes its answer."""

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        self.done = done


def test_a_client_id_that_the_next_controllers_envelope_cannot_hold_is_refused() -> None:
    """The one before takes no envelopes. The thread of the controller must not end by it."""
    follower = a_broker(active=False, versions=(0, NO_ENVELOPE))
    follower.services.peers = peers = AnswersLater()
    body = creation().encode(5)
    request = follower.send(ApiKey.CREATE_TOPICS, 5, body, client_id="\ufffd" * 11_000)
    follower.controller.image = replace(follower.controller.image, controller_id=NODE_ID)
    peers.done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs"))
    assert created(request, 5) == [ErrorCode.INVALID_REQUEST]


def test_a_session_with_a_long_principal_is_not_kept() -> None:
    long = Principal("User", "a" * (KEPT_CLIENT_ID_CHARS_MAX + 1))
    one, other = (session_of(long, "c", "INSIDE", "::1") for _ in range(2))
    assert one == other
    assert one is not other
