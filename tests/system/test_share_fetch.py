"""ShareFetch and ShareAcknowledge at a broker, by requests as clients send them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.testing import Broker
from kbroker.types import ApiKey
from tests.support.share_client import ShareClient, acquired, codes

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
OVERRIDES = {"group.share.min.record.lock.duration.ms": "1000"}
Join = Callable[..., ShareClient]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(OVERRIDES, topics={"orders": 1}) as broker:
        yield broker


@pytest.fixture
def join(broker: Broker) -> Iterator[Join]:
    """Members of a group of the test's own, which begins at the end of the log."""
    clients: list[ShareClient] = []
    group = f"g{next(_GROUPS)}"

    def made(member_id: str = "m") -> ShareClient:
        clients.append(ShareClient(broker.bootstrap, group, member_id))
        return clients[-1]

    first = made("first")
    topic_id = first.topic_id("orders")
    initialize(first, topic_id)
    yield made
    for client in clients:
        client.close()


_GROUPS = itertools.count()


def initialize(client: ShareClient, topic_id: UUID) -> None:
    for _ in range(100):
        code = client.initialize(topic_id)
        if code is ErrorCode.NONE:
            return
        threading.Event().wait(0.05)  # for the state topic of the first group
    raise AssertionError(f"the state is not initialized: {code.name}")


def begin(client: ShareClient) -> tuple[UUID, int]:
    """A session at the end of the log: the topic, and the next offset."""
    topic_id = client.topic_id("orders")
    assert acquired(client.fetch(topic_id, wait_ms=0)) == []
    for _ in range(100):  # until the start has been found, and written
        client.produce("orders", 1)
        given = acquired(client.fetch(wait_ms=200))
        if given:
            (first, *_), (_, last, _) = given[0], given[-1]
            assert codes(client.acknowledge(topic_id, (first, last, [ACCEPT]))) == [0]
            return topic_id, last + 1
    raise AssertionError("no record is delivered")


def test_a_record_is_delivered_until_it_is_accepted(join: Join) -> None:
    client = join()
    topic_id, at = begin(client)
    client.produce("orders", 10)
    assert acquired(client.fetch()) == [(at, at + 9, 1)]
    types = [ACCEPT] * 5 + [RELEASE] * 2 + [REJECT] * 3
    answer = client.fetch(topic_id, (at, at + 9, types))
    assert codes(answer) == [0]
    assert acquired(answer) == [(at + 5, at + 6, 2)]
    answer = client.fetch(topic_id, (at + 5, at + 6, [ACCEPT]), wait_ms=0)
    assert codes(answer) == [0]
    assert acquired(answer) == []
    answer = client.fetch(topic_id, (at, at, [ACCEPT]), (at + 9, at + 9, [ACCEPT]), wait_ms=0)
    assert codes(answer) == [0]  # before the start


def test_requests_that_are_refused(join: Join) -> None:
    client = join()
    topic_id = client.topic_id("orders")
    assert client.fetch(topic_id, epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert client.acknowledge(topic_id, epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    refused = client.fetch(topic_id, (0, 0, [ACCEPT]), epoch=0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    client.fetch(topic_id, epoch=0, wait_ms=0)
    for epoch in (2, 0x7FFFFFFF):
        answer = client.fetch(epoch=epoch)
        assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    answer = client.acknowledge(topic_id, epoch=0)
    assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert client.fetch(is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    client.member_id = "x" * 37
    assert client.fetch(topic_id, epoch=0).error_code == ErrorCode.INVALID_REQUEST


def test_errors_of_one_partition(join: Join) -> None:
    client = join()
    topic_id, at = begin(client)
    client.produce("orders", 4)
    assert acquired(client.fetch()) == [(at, at + 3, 1)]
    for given, code in (
        (((at + 1, at + 1, [9]),), ErrorCode.INVALID_REQUEST),
        (((at, at + 3, [ACCEPT] * 3),), ErrorCode.INVALID_REQUEST),
        (((at + 2, at + 3, [ACCEPT]), (at, at, [ACCEPT])), ErrorCode.INVALID_REQUEST),
        (((at, at + 4, [ACCEPT]),), ErrorCode.INVALID_REQUEST),
        (((at, 2**63 - 1, [ACCEPT]),), ErrorCode.INVALID_REQUEST),
        (((at, at, [RENEW]),), ErrorCode.INVALID_REQUEST),
        (((at, at + 1, [ACCEPT]), (at + 1, at + 2, [ACCEPT])), ErrorCode.INVALID_RECORD_STATE),
    ):
        answer = client.acknowledge(topic_id, *given)
        assert codes(answer) == [code]
        if code is ErrorCode.INVALID_RECORD_STATE:
            assert answer.responses[0].partitions[0].error_message
    other = join("n")
    other.fetch(topic_id, wait_ms=0)
    assert codes(other.acknowledge(topic_id, (at, at, [ACCEPT]))) == [
        ErrorCode.INVALID_RECORD_STATE
    ]
    assert codes(client.acknowledge(topic_id, (at, at, [RENEW]), renews=True)) == [0]
    assert codes(client.acknowledge(topic_id, (at, at + 3, [ACCEPT]))) == [0]
    unknown = client.fetch(UUID(int=99), wait_ms=0)
    assert [part.error_code for part in unknown.responses[0].partitions] == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]


def test_a_partition_that_no_member_has_fetched_from(join: Join) -> None:
    client = join()
    topic_id = client.topic_id("orders")
    client.fetch(wait_ms=0)
    for _ in range(2):  # the acknowledgement does not begin to serve it
        answer = client.acknowledge(topic_id, (0, 0, [ACCEPT]))
        assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_unknown_topic_beside_another_ends_no_wait(join: Join) -> None:
    client, producer = join(), join()
    _, at = begin(client)
    threading.Timer(0.1, producer.produce, ("orders", 2)).start()
    answer = client.fetch(UUID(int=99), wait_ms=20_000)
    assert acquired(answer) == [(at, at + 1, 1)]
    assert sorted(part.error_code for each in answer.responses for part in each.partitions) == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID,
    ]  # fmt: skip


def test_records_wake_a_fetch(join: Join) -> None:
    client, producer = join(), join()
    _, at = begin(client)
    threading.Timer(0.1, producer.produce, ("orders", 2)).start()
    assert acquired(client.fetch(wait_ms=20_000)) == [(at, at + 1, 1)]


def test_a_connection_that_ends_releases_and_wakes(join: Join) -> None:
    client, other = join(), join("n")
    topic_id, at = begin(client)
    client.produce("orders", 3)
    assert acquired(client.fetch()) == [(at, at + 2, 1)]
    threading.Timer(0.1, client.close).start()
    assert acquired(other.fetch(topic_id, wait_ms=20_000)) == [(at, at + 2, 2)]


ACKNOWLEDGE = ApiKey.SHARE_ACKNOWLEDGE


def test_requests_before_the_end_of_their_connection_are_applied(join: Join) -> None:
    """Also its session's last request; then its other records are available."""
    for epochs in ([-1], [None, None, -1], [None]):
        client, other = join(), join("n")
        topic_id, at = begin(client)
        client.produce("orders", 4)
        assert acquired(client.fetch()) == [(at, at + 3, 1)]
        for number, epoch in enumerate(epochs):
            asked = client.acknowledgement(
                topic_id, (at + number, at + number, [ACCEPT]), epoch=epoch
            )
            client.send(ACKNOWLEDGE, 2, asked)
        client.send_no_more()
        for _ in epochs:
            answer = client.receive(ACKNOWLEDGE, 2)
            assert (answer.error_code, codes(answer)) == (0, [0])
        left = (at + len(epochs), at + 3)
        assert acquired(other.fetch(topic_id, wait_ms=20_000)) == [(*left, 2)]
        assert codes(other.acknowledge(topic_id, (*left, [ACCEPT]))) == [0]
        other.close()


def test_a_client_that_closes_its_connection_has_acknowledged_before(join: Join) -> None:
    client, other = join(), join("n")
    topic_id, at = begin(client)
    client.produce("orders", 4)
    assert acquired(client.fetch()) == [(at, at + 3, 1)]
    client.send(ACKNOWLEDGE, 2, client.acknowledgement(topic_id, (at, at, [ACCEPT]), epoch=-1))
    client.close()
    assert acquired(other.fetch(topic_id, wait_ms=20_000)) == [(at + 1, at + 3, 2)]


def test_no_record_leaves_to_a_client_that_sends_no_more(join: Join) -> None:
    """It could not acknowledge it."""
    client, other = join(), join("n")
    topic_id, at = begin(client)
    client.send(ApiKey.SHARE_FETCH, 2, client.asked(wait_ms=60_000))
    client.send_no_more()
    assert acquired(client.receive(ApiKey.SHARE_FETCH, 2)) == []
    other.produce("orders", 1)
    assert acquired(other.fetch(topic_id)) == [(at, at, 1)]


def test_a_member_that_leaves_releases(join: Join) -> None:
    client, other = join(), join("n")
    topic_id, at = begin(client)
    client.produce("orders", 3)
    client.fetch()
    answer = client.fetch(topic_id, (at, at, [ACCEPT]), epoch=-1)
    assert codes(answer) == [0]
    assert acquired(other.fetch(topic_id)) == [(at + 1, at + 2, 2)]


def test_the_end_of_a_lock_wakes(broker: Broker, join: Join) -> None:
    client, other = join(), join("n")
    table = messages.incremental_alter_configs
    lock = table.AlterableConfig(
        name="share.record.lock.duration.ms", config_operation=0, value="1000"
    )
    resource = table.AlterConfigsResource(
        resource_type=32, resource_name=client.group_id, configs=[lock]
    )
    altered = client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        table.Request(resources=[resource], validate_only=False),
    )
    assert altered.responses[0].error_code == 0
    topic_id, at = begin(client)
    client.produce("orders", 3)
    answer = client.fetch()
    assert answer.acquisition_lock_timeout_ms == 1_000
    assert acquired(other.fetch(topic_id, wait_ms=20_000)) == [(at, at + 2, 2)]
    assert codes(client.acknowledge(topic_id, (at, at, [ACCEPT]))) == [
        ErrorCode.INVALID_RECORD_STATE
    ]


def test_the_record_limit(join: Join) -> None:
    client = join()
    topic_id, at = begin(client)
    client.produce("orders", 10)
    assert acquired(client.fetch(records=3, share_acquire_mode=1)) == [(at, at + 2, 1)]
    assert acquired(client.fetch(records=3)) == [(at + 3, at + 9, 1)]
    client.acknowledge(topic_id, (at, at + 9, [ACCEPT]))


def test_a_wait_for_bytes_ends_with_fewer(join: Join) -> None:
    client = join()
    _, at = begin(client)
    client.produce("orders", 1)
    assert acquired(client.fetch(wait_ms=200, min_bytes=100_000)) == [(at, at, 1)]


def test_records_count_for_the_quota_of_bytes(join: Join) -> None:
    client = join()
    begin(client)
    client.produce("orders", 1)
    join("other").set_fetch_quota(1.0)
    try:
        assert client.fetch().throttle_time_ms > 0
    finally:
        join("other").set_fetch_quota(None)


def test_without_the_feature_it_is_not_served() -> None:
    """A new cluster has it; one of an earlier kbroker gets it by an upgrade."""
    with Broker(topics={"orders": 1}) as broker, ShareClient(broker.bootstrap) as client:
        for level in (1, 0, 1):
            client.set_level("share.version", level)
            asked = messages.api_versions.Request(
                client_software_name="t", client_software_version="1"
            )
            answer = client.ask(ApiKey.API_VERSIONS, 3, asked)
            listed = {each.api_key for each in answer.api_keys}
            apis = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
            assert listed & apis == (apis if level else set())
            answer = client.fetch(client.topic_id("orders"), wait_ms=0, epoch=0)
            is_unsupported = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert is_unsupported is not bool(level)


def test_records_that_were_delivered_are_not_lost_by_a_kill(tmp_path: Path) -> None:
    """The start that `latest` has found is kept before the first of them leaves."""
    with Broker(OVERRIDES, tmp_path, topics={"orders": 1}) as broker:
        with ShareClient(broker.bootstrap) as client:
            initialize(client, client.topic_id("orders"))
            client.produce("orders", 7)
            topic_id, at = begin(client)
            client.produce("orders", 4)
            assert acquired(client.fetch()) == [(at, at + 3, 1)]
            broker.kill9()  # before the session ends with its connection, and counts
        broker.restart()
        with ShareClient(broker.bootstrap) as client:
            assert acquired(client.fetch(topic_id, wait_ms=20_000)) == [(at, at + 3, 1)]
