"""Clients over a quota, through real sockets: what answers say, what they hold, who is not read."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from kbroker.quota._client_quotas import ClientQuotas
from kbroker.security.session import ANONYMOUS
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.following import BATCH, FOLLOWER, follow, replicated, send
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    Ask,
    answer_in,
    fetch_frame,
    produce_frame,
    produced_in,
)
from tests.unit.net.harness import COLD_KEY, Client, Rig, cold_frame, eventually, framed, header

USER = ANONYMOUS.name
KINDS = ("produce", "fetch", "request", "mutation")
# So long that a test which waits for its end fails.
FOR_EVER = 1e-6


class Limited:
    """A rig whose clients have quotas: two samples of a tenth of a second."""

    def __init__(self, rig: Rig, **options: int) -> None:
        self.rig = rig
        self.quotas = ClientQuotas(**({"samples": 2, "sample_ms": 100} | options))
        rig.server.use_quotas(self.quotas)
        for key in (ApiKey.FETCH, ApiKey.HEARTBEAT):
            rig.server.set_throttle_from(key, 1)
        rig.server.set_throttle_from(COLD_KEY, 1)

    def limit(self, *names: str | None, **bounds: float) -> None:
        user, client = names or (USER, None)
        self.quotas.load([(user, client, [bounds.get(kind) for kind in KINDS])])
        self.rig.server.quotas_changed()

    def lift(self) -> None:
        self.quotas.load([])
        self.rig.server.quotas_changed()


@pytest.fixture(params=[True, False], ids=["pipelined", "stock"])
def limited(request: pytest.FixtureRequest, make_rig: Callable[..., Rig]) -> Limited:
    return Limited(make_rig(pipelined=request.param))


def throttle_time(key: ApiKey, version: int, payload: bytes) -> int:
    found = answer_in(key, version, payload)[1].throttle_time
    return round(found.total_seconds() * 1000)


def records_in(version: int, payload: bytes) -> int:
    """Bytes of them."""
    answer = answer_in(ApiKey.FETCH, version, payload)[1]
    topics = answer.responses
    return sum(len(p.records or b"") for topic in topics for p in topic.partitions)


def is_not_read(client: Client) -> None:
    client.send(cold_frame(b"not read"))


# --- produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_produce_over_the_quota_is_answered_and_its_client_waits(
    limited: Limited, version: int
) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=200.0)
    client = limited.rig.client()
    began = time.monotonic()
    send(client, topic, version=version, acks=1)
    throttle_ms = throttle_time(ApiKey.PRODUCE, version, client.receive())
    assert throttle_ms > 100
    client.send(cold_frame(b"after it"))
    assert client.receive_cold()[1] == b"after it"
    assert time.monotonic() - began >= throttle_ms / 1000
    assert topic.logs[0].log_end_offset == 2


def test_the_whole_request_counts(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited = Limited(limited.rig, sample_ms=1_000_000)
    limited.limit(produce=1e9)
    client = limited.rig.client()
    frame_bytes = 0
    for _ in range(3):
        before = limited.rig.total("received_bytes")
        send(client, topic, acks=1)
        client.receive()
        frame_bytes += limited.rig.total("received_bytes") - before - 4
    ((*_, rate, _, _, _),) = limited.quotas.figures()
    assert round(rate * 1_000) == frame_bytes


def test_a_produce_without_an_answer_has_its_client_wait_too(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=200.0)
    client = limited.rig.client()
    began = time.monotonic()
    send(client, topic, acks=0)
    eventually(lambda: topic.logs[0].log_end_offset == 2, "it is written")
    eventually(lambda: limited.quotas.figures()[0][6] == 1, "and over the quota")
    client.send(cold_frame(b"after it"))
    assert client.receive_cold()[1] == b"after it"
    assert time.monotonic() - began >= 0.1


def test_produces_that_wait_for_followers_are_charged_when_they_are_answered(
    make_rig: Callable[..., Rig],
) -> None:
    limited = Limited(make_rig())
    topic = replicated(limited.rig)
    client = limited.rig.client()
    for number in range(3):
        send(client, topic, correlation_id=number)
        limited.rig.wait_parked(number + 1)
    limited.limit(produce=200.0)
    follow(limited.rig, topic.logs[0])
    answers = [client.receive() for _ in range(3)]
    assert [produced_in(9, each)[0] for each in answers] == [0, 1, 2]
    times_ms = [throttle_time(ApiKey.PRODUCE, 9, each) for each in answers]
    assert 0 < times_ms[0] < times_ms[1] < times_ms[2]


# --- fetch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_is_charged_the_bytes_of_its_answer(limited: Limited, version: int) -> None:
    topics = [limited.rig.create(name, 2) for name in ("t", "a-longer-name")]
    for topic in topics:
        topic.logs[1].append(BATCH * 1)
    limited = Limited(limited.rig, sample_ms=1_000_000)
    limited.limit(fetch=1e9)
    client = limited.rig.client()
    client.send(fetch_frame(version, [Ask(topic, at) for topic in topics for at in range(2)]))
    payload = client.receive()
    ((kind, *_, rate, _, _, _),) = limited.quotas.figures()
    assert (kind, round(rate * 1_000)) == ("fetch", len(payload) - (version >= 12))


def test_a_fetch_over_the_quota_has_no_records(limited: Limited) -> None:
    topic = limited.rig.create("t")
    topic.logs[0].append(BATCH)
    limited.limit(fetch=200.0)
    client = limited.rig.client()
    began = time.monotonic()
    client.send(fetch_frame(12, [Ask(topic)]))
    payload = client.receive()
    throttle_ms = throttle_time(ApiKey.FETCH, 12, payload)
    assert records_in(12, payload) == 0 and throttle_ms > 100
    client.send(cold_frame())
    client.receive_cold()
    assert time.monotonic() - began >= throttle_ms / 1000
    assert limited.quotas.figures()[0][4] == 0  # nothing was sent
    limited.lift()
    client.send(fetch_frame(12, [Ask(topic)]))
    assert records_in(12, client.receive()) == len(BATCH)


def test_a_full_fetch_over_the_quota_gets_no_session(limited: Limited) -> None:
    topic = limited.rig.create("t")
    topic.logs[0].append(BATCH)
    limited.limit(fetch=500.0)
    client = limited.rig.client()
    client.send(fetch_frame(12, [Ask(topic)], session=(0, 0)))
    answer = answer_in(ApiKey.FETCH, 12, client.receive())[1]
    assert (answer.session_id, answer.error_code, answer.responses) == (0, 0, ())


def test_a_session_goes_on_after_an_answer_without_records(limited: Limited) -> None:
    topic = limited.rig.create("t")
    client = limited.rig.client()
    client.send(fetch_frame(12, [Ask(topic)], session=(0, 0)))
    session = answer_in(ApiKey.FETCH, 12, client.receive())[1].session_id
    assert session > 0
    topic.logs[0].append(BATCH)
    limited.limit(fetch=FOR_EVER)
    client.send(fetch_frame(12, [], session=(session, 1)))
    answer = answer_in(ApiKey.FETCH, 12, client.receive())[1]
    assert (answer.session_id, answer.error_code, answer.responses) == (session, 0, ())
    limited.lift()
    client.send(fetch_frame(12, [], session=(session, 2)))
    payload = client.receive()
    assert answer_in(ApiKey.FETCH, 12, payload)[1].session_id == session
    assert records_in(12, payload) == len(BATCH)


def test_a_fetch_has_no_more_than_a_window(limited: Limited) -> None:
    topic = limited.rig.create("t")
    batch = build_batch([bytes(1_000)])
    for _ in range(20):
        topic.logs[0].append(batch)
    limited = Limited(limited.rig, sample_ms=1_000)
    limited.limit(fetch=3.5 * len(batch))
    client = limited.rig.client()
    frame = fetch_frame(12, [Ask(topic)], min_bytes=1 << 20, max_wait_ms=600_000)
    # It does not wait for more than it may have. With the head of the answer that is a little too
    # much for the first moment of a window, as in Apache Kafka.
    for _ in range(2):
        client.send(frame)
        payload = client.receive()
    assert 3 * len(batch) < records_in(12, payload) <= 3.5 * len(batch)


def test_followers_have_no_quota(limited: Limited) -> None:
    topic = replicated(limited.rig)
    topic.logs[0].append(BATCH)
    limited.limit(fetch=FOR_EVER, request=FOR_EVER)
    client = limited.rig.client()
    client.send(fetch_frame(12, [Ask(topic)], replica_id=FOLLOWER))
    payload = client.receive()
    assert throttle_time(ApiKey.FETCH, 12, payload) == 0
    assert records_in(12, payload) == len(BATCH)
    assert limited.quotas.figures() == []


# --- time -----------------------------------------------------------------------------------------


def test_the_time_of_requests_counts_and_is_bounded_by_a_sample(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(request=FOR_EVER)
    client = limited.rig.client()
    for _ in range(2):
        began = time.monotonic()
        client.send(framed(header(COLD_KEY, 1) + bytes(4) + b"rest"))
        payload = client.receive_cold()[1]
        assert payload == struct.pack(">i", 100) + b"rest"
        send(client, topic, acks=1)
        assert throttle_time(ApiKey.PRODUCE, 9, client.receive()) == 100
        assert time.monotonic() - began >= 0.1


def test_an_answer_without_that_field_has_its_client_wait_too(limited: Limited) -> None:
    limited.limit(request=FOR_EVER)
    client = limited.rig.client()
    began = time.monotonic()
    for _ in range(3):
        client.send(cold_frame(b"some bytes"))
        assert client.receive_cold()[1] == b"some bytes"
    assert time.monotonic() - began >= 0.2


def test_time_between_brokers_does_not_count(limited: Limited) -> None:
    limited.limit(request=FOR_EVER)
    limited.rig.server.set_between_brokers(COLD_KEY)
    client = limited.rig.client()
    for _ in range(3):
        client.send(cold_frame())
        client.receive_cold()
    assert limited.quotas.figures() == []


# --- who waits, and until when --------------------------------------------------------------------


def test_others_do_not_wait(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(USER, "test", produce=FOR_EVER)
    client, other = limited.rig.client(), limited.rig.client()
    send(client, topic, acks=1)
    client.receive()
    is_not_read(client)
    frame = framed(header(COLD_KEY, 0, 1, "another") + b"at once")
    for _ in range(3):
        other.send(frame)
        assert other.receive_cold()[1] == b"at once"
    assert not client.has_bytes()
    client.reset()  # an end after bytes is seen when they are read


@pytest.mark.parametrize(
    ("slow", "fast"),
    # A short one is compared by itself, one of more than 44 bytes by its hash.
    [("slow", "fast"), ("slow", "slower"), ("s" * 44, "s" * 45), ("s" * 90, "s" * 44)],
)
def test_a_channel_with_several_client_ids(limited: Limited, slow: str, fast: str) -> None:
    limited.limit(USER, slow, request=FOR_EVER)
    client = limited.rig.client()
    turns = ((fast, False), ("", False), (slow, True), (fast, False), (slow, True), (None, False))
    for name, waits in turns:
        client.send(framed(header(COLD_KEY, 1, 1, name) + bytes(4)))
        (throttle_ms,) = struct.unpack(">i", client.receive_cold()[1])
        assert (throttle_ms > 0) == waits


@pytest.mark.parametrize("name", ["", "x" * 32_000, "\0", "a" * 128 + "b"])
def test_client_ids(limited: Limited, name: str) -> None:
    limited.limit(USER, name or None, request=FOR_EVER)
    client = limited.rig.client()
    client.send(framed(header(COLD_KEY, 1, 1, name) + bytes(4)))
    assert client.receive_cold()[1] == struct.pack(">i", 100)


def test_a_client_that_waits_goes_on_when_its_quota_is_removed(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=FOR_EVER)
    client = limited.rig.client()
    send(client, topic, acks=1)
    assert throttle_time(ApiKey.PRODUCE, 9, client.receive()) == 2**31 - 1
    client.send(cold_frame(b"goes on"))
    limited.lift()
    assert client.receive_cold()[1] == b"goes on"


def test_a_client_that_waits_goes_on_when_its_quota_is_raised(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=FOR_EVER)
    client = limited.rig.client()
    send(client, topic, acks=1)
    client.receive()
    limited.limit(produce=1e9)
    for _ in range(3):
        send(client, topic, acks=1)
        assert throttle_time(ApiKey.PRODUCE, 9, client.receive()) == 0


def test_a_client_that_waits_may_go(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=FOR_EVER)
    for _ in range(20):
        client = limited.rig.client()
        send(client, topic, acks=1)
        client.receive()
        client.reset()
    eventually(lambda: limited.rig.total("connections") == 0, "their ends are seen")
    assert limited.quotas.statistics()["buckets"] == 1


def test_a_rig_stops_while_clients_wait(limited: Limited) -> None:
    topic = limited.rig.create("t")
    limited.limit(produce=FOR_EVER)
    client = limited.rig.client()
    send(client, topic, acks=1)
    client.receive()
    is_not_read(client)
    client.reset()


# --- trains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
def test_a_train_over_the_quota(make_rig: Callable[..., Rig], waits: bool) -> None:
    """Produces that were read together are answered together, and their client waits once."""
    limited = Limited(make_rig())
    topic = replicated(limited.rig) if waits else limited.rig.create("t")
    limited.limit(produce=2_000.0)
    client = limited.rig.client()
    for turn in range(5):
        frames = (
            produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=600_000, correlation_id=at)
            for at in range(8)
        )
        client.send(b"".join(frames))
        if waits:
            limited.rig.wait_parked(1)
            eventually(lambda turn=turn: topic.logs[0].log_end_offset == 16 * (turn + 1))
            follow(limited.rig, topic.logs[0])
        answers = [client.receive() for _ in range(8)]
        assert [produced_in(9, each)[0] for each in answers] == list(range(8))
    assert limited.rig.total("train_frames") > 0
    assert limited.rig.total("protocol_errors") == 0
    client.send(cold_frame(b"goes on"))
    assert client.receive_cold()[1] == b"goes on"
