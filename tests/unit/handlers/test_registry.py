"""The dispatch: whatever comes in, one answer or one closed connection comes out."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.handlers import reply
from kbroker.handlers.registry import APIS, REGISTRY, Api, Registry
from kbroker.handlers.reply import Reply
from kbroker.handlers.services import ColdRequest, Services
from kbroker.limits import CUT_OFF_LINE_PERIOD_MS
from kbroker.log_lines import LogLines
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, FakeRequest, answer_of


def registry_with(error: Exception, *, with_failure: bool = True) -> Registry:
    def handle(services: Services, request: ColdRequest) -> None:
        raise error

    def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
        return f"{int(code)} {message}".encode()

    return Registry([Api(ApiKey.METADATA, handle, failure if with_failure else None, ())])


def dispatch(registry: Registry, key: int = ApiKey.METADATA, version: int = 5) -> FakeRequest:
    request = FakeRequest(key, version, b"")
    registry.dispatch(FakeBroker().services, request)
    return request


def test_one_row_for_every_served_api() -> None:
    assert {api.key for api in REGISTRY.apis if api.between_brokers is None} == set(SERVED)
    assert [api.key for api in REGISTRY.apis if api.hot] == [
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.HEARTBEAT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ]
    for api in REGISTRY.apis:
        served = api.call is not None or (api.handle is not None and api.failure is not None)
        assert api.hot or served
        assert api.advertised_min <= api.min_version <= api.max_version
        assert REGISTRY.get(api.key) is api
        assert api.name == api.key.label


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (ApiKey.METADATA, 14), (ApiKey.METADATA, -1), (ApiKey.CREATE_TOPICS, 1)],
)
def test_an_api_that_is_not_served_closes_the_connection(key: int, version: int) -> None:
    request = dispatch(REGISTRY, key, version)
    assert request.answer is None
    assert request.closed is not None


def test_a_client_that_is_cut_off_finds_the_reason_at_warn(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    lines = LogLines(reply.logger, lambda: now_ns, period_ms=CUT_OFF_LINE_PERIOD_MS)
    monkeypatch.setattr(reply, "cut_off_lines", lines)
    services = FakeBroker().services

    def ask(client_id: str, host: str, version: int = 2) -> None:
        request = FakeRequest(ApiKey.PRODUCE, version, b"", client_id=client_id, peer_host=host)
        REGISTRY.dispatch(services, request)
        assert request.closed == f"Produce v{version} is not served; served are 3 to 13"

    for _ in range(3):
        ask("old", "10.0.0.1")
    ask("old", "10.0.0.2")
    ask("other\n", "10.0.0.2", 99)
    now_ns += 61 * 1_000_000_000
    ask("old", "10.0.0.1")
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    line = "closing {} of client '{}': Produce v{} is not served; served are 3 to 13"
    connection = FakeRequest(0, 0, b"").connection_id
    assert caplog.messages == [
        line.format(connection, "old", 2),
        line.format(connection, "old", 2),
        line.format(connection, "other\\n", 99),
        line.format(connection, "old", 2) + " (and 2 like it before)",
    ]


@pytest.mark.parametrize("version", [0, 2, 3, 13])
def test_produce_is_never_answered_by_the_cold_path(version: int) -> None:
    assert dispatch(REGISTRY, ApiKey.PRODUCE, version).closed is not None


def test_a_cold_half_for_a_hot_api() -> None:
    def handle(services: Services, request: ColdRequest) -> None:
        request.respond(b"cold")

    registry = REGISTRY.with_hot(ApiKey.FETCH, handle, None)
    assert dispatch(registry, ApiKey.FETCH, 18).answer == b"cold"
    # The row of Envelope serves what is inside by its own registry.
    rows, before = (
        [api[:1] + api[3:] for api in each.apis if api.key is not ApiKey.ENVELOPE]
        for each in (registry, REGISTRY)
    )
    assert rows == before


def test_an_api_that_is_not_in_the_registry_is_not_listed() -> None:
    registry = Registry(api for api in APIS if api.key is not ApiKey.CREATE_TOPICS)
    request = dispatch(registry, ApiKey.API_VERSIONS, 2)
    listed = {key.api_key for key in answer_of(request).api_keys}
    of_protocols = {api.key for api in APIS if api.protocol is not None}
    assert listed == set(SERVED) - {ApiKey.CREATE_TOPICS} - of_protocols
    assert dispatch(registry, ApiKey.CREATE_TOPICS, 5).closed is not None


def test_malformed_bytes_close_the_connection() -> None:
    assert "malformed" in (dispatch(registry_with(ProtocolError("no"))).closed or "")


def test_expected_trouble_is_an_answer_and_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    error = KafkaError(ErrorCode.NOT_CONTROLLER, "elsewhere")
    assert dispatch(registry_with(error)).answer == b"41 elsewhere"
    assert caplog.records == []


@pytest.mark.parametrize("error", [RuntimeError("a\nb"), InvariantError("x"), KeyError("k")])
def test_the_unexpected_is_a_server_error_and_one_log_line(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert dispatch(registry_with(error)).answer == b"-1 "
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "\n" not in record.getMessage()
    assert "Metadata v5" in record.getMessage()
    assert type(error).__name__ in record.getMessage()


def test_without_an_error_body_the_connection_is_closed() -> None:
    assert dispatch(registry_with(RuntimeError(), with_failure=False)).closed is not None


def test_an_error_body_that_cannot_be_made_closes_the_connection() -> None:
    def broken(*_: object) -> bytes:
        raise ValueError("again")

    registry = Registry(
        [Api(ApiKey.METADATA, registry_with(RuntimeError()).apis[0].handle, broken, ())]
    )
    assert "ValueError" in (dispatch(registry).closed or "")


def test_an_exception_after_the_answer_does_not_answer_twice() -> None:
    def handle(services: Services, request: ColdRequest) -> None:
        request.respond(b"first")
        raise RuntimeError("too late")

    failure = registry_with(RuntimeError()).apis[0].failure
    assert dispatch(Registry([Api(ApiKey.METADATA, handle, failure, ())])).answer == b"first"


# --- Reply ------------------------------------------------------------------------------------


class PlainReply(Reply):
    def _failed(self, request: ColdRequest, code: ErrorCode, message: str) -> bytes:
        return f"{int(code)} {message}".encode()


def test_the_first_answer_counts() -> None:
    request = FakeRequest(3, 5, b"")
    reply = PlainReply(request)
    assert reply.send(lambda: b"one")
    assert not reply.send(lambda: b"two")
    assert not reply.fail(ErrorCode.REQUEST_TIMED_OUT)
    assert request.answer == b"one"


def test_a_body_that_cannot_be_made_is_a_server_error() -> None:
    request = FakeRequest(3, 5, b"")
    PlainReply(request).send(lambda: bytes(1 // 0))
    assert request.answer == b"-1 "


def test_an_exception_in_the_handlers_body() -> None:
    request = FakeRequest(3, 5, b"")
    with PlainReply(request) as reply:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")
    assert request.answer == b"42 no"
    assert not reply.fail(ErrorCode.REQUEST_TIMED_OUT)


def test_an_exception_after_the_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    request = FakeRequest(3, 5, b"")
    with PlainReply(request) as reply:
        reply.send(lambda: b"one")
        raise RuntimeError("too late")
    assert request.answer == b"one"
    assert "too late" in caplog.text


def test_many_threads_one_answer() -> None:
    for _ in range(20):
        request = FakeRequest(3, 5, b"")
        reply = PlainReply(request)
        start = threading.Barrier(4)
        firsts: list[bool] = []

        def race(
            reply: Reply = reply,
            start: threading.Barrier = start,
            firsts: list[bool] = firsts,
        ) -> None:
            start.wait()
            firsts.append(reply.send(lambda: b"x"))

        threads = [threading.Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(firsts) == [False, False, False, True]


# --- everything -------------------------------------------------------------------------------

SERVED_VERSIONS = [
    (key, v) for key, r in SERVED.items() for v in range(r.advertised_min, r.max + 1)
]


@settings(deadline=None, max_examples=400)
@given(which=st.sampled_from(SERVED_VERSIONS), body=st.binary(max_size=120))
def test_any_bytes_to_any_api_are_answered_or_closed(
    which: tuple[ApiKey, int], body: bytes
) -> None:
    broker = FakeBroker()
    request = broker.send(*which, body)
    broker.elapse()
    assert (request.answer is None) != (request.closed is None)


@settings(deadline=None)
@given(key=st.integers(-(2**15), 2**15 - 1), version=st.integers(-(2**15), 2**15 - 1))
def test_any_key_and_version(key: int, version: int) -> None:
    request = dispatch(REGISTRY, key, version)
    assert (request.answer is None) != (request.closed is None)
