"""kbroker.testing itself: faults on the paths that C serves, the clock, and the look inside."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kbroker.errors import KafkaError
from kbroker.testing import ApiKey, Broker, BrokerFailed, ExternalBroker, KafkaContainer
from kbroker.testing.inspection import wait_until
from tests.clients.adapters import CODECS, Confluent, Record

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        assert "Traceback" not in broker.log_text()


@pytest.fixture(autouse=True)
def no_rules_are_left(broker: Broker) -> Iterator[None]:
    yield
    broker.clear()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic()


def producer(broker: Broker, **options: Any) -> Any:
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "p", "linger.ms": 0, **options}
    )


def delivered(broker: Broker, topic: str, value: bytes, **options: Any) -> Any:
    """None, or the error that the client gave up with."""
    errors: list[Any] = []
    client = producer(broker, **options)
    client.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert client.flush(60) == 0
    return errors[0]


def test_errors_as_often_as_asked_and_then_the_path_is_hot_again(
    broker: Broker, topic: str
) -> None:
    rule = broker.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert delivered(broker, topic, b"x") is None
    assert rule.hits == 2
    assert [r.value for r in broker.records(topic)] == [b"x"]
    noted = len(broker.requests(ApiKey.PRODUCE))
    assert delivered(broker, topic, b"y") is None
    assert len(broker.requests(ApiKey.PRODUCE)) == noted  # C has served it


def test_an_error_that_ends_it(broker: Broker, topic: str) -> None:
    broker.on(ApiKey.PRODUCE, error="TOPIC_AUTHORIZATION_FAILED")
    error = delivered(broker, topic, b"x")
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.records(topic) == []


def test_a_dropped_request_has_no_effect_and_comes_again(broker: Broker, topic: str) -> None:
    rule = broker.on(ApiKey.PRODUCE, drop=True, times=1)
    assert delivered(broker, topic, b"x", **{"enable.idempotence": True}) is None
    assert rule.hits == 1
    assert len(broker.records(topic)) == 1


def test_a_delay_is_waited_for_and_then_served(broker: Broker, topic: str) -> None:
    with broker.delay(ApiKey.PRODUCE, ms=300) as rule:
        began = time.monotonic()
        assert delivered(broker, topic, b"x") is None
        assert time.monotonic() - began >= 0.3
        assert rule.hits >= 1
    assert len(broker.records(topic)) == 1


def test_a_rule_for_one_client(broker: Broker, topic: str) -> None:
    rule = broker.on(ApiKey.PRODUCE, error="TOPIC_AUTHORIZATION_FAILED", client_id="bad")
    assert delivered(broker, topic, b"x") is None
    assert delivered(broker, topic, b"y", **{"client.id": "bad"}) is not None
    assert rule.hits == 1


def test_a_consumer_gets_over_failing_fetches_and_metadata(broker: Broker, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.produce(topic, [Record(b"%d" % n) for n in range(100)])
    fetches = broker.on(ApiKey.FETCH, error="NOT_LEADER_OR_FOLLOWER", times=3)
    looks = broker.on(ApiKey.METADATA, error="LEADER_NOT_AVAILABLE", times=2)
    values = [record.value for record in client.consume(topic, 100)]
    assert values == [b"%d" % n for n in range(100)]
    assert fetches.hits == 3 and looks.hits == 2


def test_many_producers_while_every_produce_takes_the_long_way(broker: Broker) -> None:
    """Order and sequences hold: a request has its place in its connection's order."""
    topic = broker.create_topic(partitions=3)
    broker.on(ApiKey.PRODUCE, delay_ms=0)
    clients = [producer(broker, **{"enable.idempotence": True}) for _ in range(4)]
    for number in range(300):
        for place, client in enumerate(clients):
            client.produce(topic, b"%d" % number, key=b"%d" % place, partition=place % 3)
            if number % 10 == 0:
                client.poll(0)
    assert all(client.flush(60) == 0 for client in clients)
    found = broker.records(topic)
    for place in range(4):
        values = [r.value for r in found if r.key == b"%d" % place]
        assert values == [b"%d" % number for number in range(300)]


def test_a_throttled_producer_and_consumer_are_answered_so(broker: Broker, topic: str) -> None:
    elapsed_s: list[float] = []
    client = producer(
        broker, throttle_cb=lambda event: elapsed_s.append(event.throttle_time), **{"linger.ms": 0}
    )
    with broker.on(ApiKey.PRODUCE, throttle_ms=400, times=2) as rule:
        for value in (b"x", b"y", b"z"):
            client.produce(topic, value)
            assert client.flush(60) == 0
        assert rule.hits == 2
    assert elapsed_s == [0.4, 0.4, 0.0]  # and that it is over
    with broker.on(ApiKey.FETCH, throttle_ms=200) as rule:
        values = [record.value for record in Confluent(broker.bootstrap).consume(topic, 3)]
        assert values == [b"x", b"y", b"z"] and rule.hits > 0
    with pytest.raises(ValueError, match="Produce and Fetch"):
        broker.on(ApiKey.METADATA, throttle_ms=1)


def test_connections_that_drop_come_back(broker: Broker, topic: str) -> None:
    client = producer(broker)
    client.produce(topic, b"x")
    assert client.flush(60) == 0
    assert broker.drop_connections() >= 1
    client.produce(topic, b"y")
    assert client.flush(60) == 0
    assert [r.value for r in broker.records(topic)] == [b"x", b"y"]


def test_records_of_all_codecs_in_all_partitions(broker: Broker) -> None:
    topic = broker.create_topic(partitions=2, cleanup_policy="compact")
    for number, codec in enumerate(CODECS):
        client = producer(broker, **{"compression.type": codec})
        client.produce(
            topic, b"v" * 500, key=codec, partition=number % 2, headers=[("h", b"1")],
            timestamp=1_700_000_000_000,
        )  # fmt: skip
        assert client.flush(60) == 0
    found = broker.records(topic)
    assert sorted(r.key.decode() for r in found if r.key) == sorted(CODECS)
    assert {(r.value, r.headers, r.timestamp_ms) for r in found} == {
        (b"v" * 500, (("h", b"1"),), 1_700_000_000_000)
    }
    assert {r.partition for r in broker.records(topic, 1)} == {1}
    assert broker.wait_for_records(topic, len(CODECS)) == found
    with pytest.raises(TimeoutError, match=r"did not get 99 records.*it has 5"):
        broker.wait_for_records(topic, 99, timeout_s=0.05)


def subscribed(broker: Broker, topic: str, group: str, **options: Any) -> Any:
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": group,
            "auto.offset.reset": "earliest", **options,
        }
    )  # fmt: skip
    client.subscribe([topic])
    return client


def test_groups_and_their_committed_offsets(broker: Broker, topic: str) -> None:
    group = f"g-{topic}"
    assert broker.group(group).state == "Dead"
    Confluent(broker.bootstrap).produce(topic, [Record(b"a"), Record(b"b")])
    client = subscribed(broker, topic, group)
    assert client.poll(60).value() == b"a"
    assert broker.wait_for(group=group, state="stable", members=1).members == (group,)
    assert group in {each.group for each in broker.groups()}
    client.commit(asynchronous=False)
    assert list(broker.committed(group).values()) == [1]
    with pytest.raises(TimeoutError, match="7 members"):
        broker.wait_for(group=group, members=7, timeout_s=0.05)
    client.close()
    broker.wait_for(group=group, state="Empty")


def test_the_clock_ends_a_session_that_is_not_kept(broker: Broker, topic: str) -> None:
    group = f"g-{topic}"
    client = subscribed(broker, topic, group)
    client.poll(0)
    broker.wait_for(group=group, state="Stable", members=1)
    broker.on(ApiKey.HEARTBEAT, drop=True)
    broker.on(ApiKey.JOIN_GROUP, drop=True)
    before_ms = broker.clock.now_ms()
    broker.clock.advance(minutes=1)  # less than until groups without offsets are removed
    assert broker.clock.now_ms() >= before_ms + 60_000
    broker.wait_for(group=group, state="Empty")
    broker.clear()
    # Time goes on as before, and the client comes back by itself.
    wait_until(lambda: client.poll(0.1) or broker.group(group).members, "it did not come back")
    client.close()


def test_a_trace_of_everything() -> None:
    with Broker(topics={"orders": 1}, trace=True) as broker:
        assert broker.requests() == []  # what made the topic was ours
        client = Confluent(broker.bootstrap)
        client.produce("orders", [Record(b"x")])
        assert [record.value for record in client.consume("orders", 1)] == [b"x"]
        seen = {each.api for each in broker.requests()}
        assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS} <= seen
        # The client asks for metadata when it likes: two looks at a time when it does not.
        wait_until(
            lambda: broker.last_requests(1) == broker.requests()[-1:], "the last one is another"
        )


def test_in_this_process_and_from_a_coroutine() -> None:
    async def there() -> list[bytes | None]:
        async with Broker(topics={"orders": 2}, in_process=True) as broker:
            rule = broker.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", times=1)
            error = await asyncio.to_thread(delivered, broker, "orders", b"x")
            assert error is None and rule.hits == 1
            assert "created 1 topics: orders" in broker.log_text()
            return [record.value for record in broker.records("orders")]

    assert asyncio.run(there()) == [b"x"]


def test_brokers_in_this_process_give_the_level_of_its_logger_back() -> None:
    logger = logging.getLogger("kbroker")
    before = logger.level
    with ExitStack() as second:
        with Broker(in_process=True):
            assert logger.isEnabledFor(logging.INFO)
            second.enter_context(Broker(in_process=True))
        assert logger.isEnabledFor(logging.INFO)
    assert logger.level == before == logging.NOTSET


def test_data_and_port_outlive_a_restart_and_rules_do_not() -> None:
    with Broker(topics={"orders": 1}) as broker:
        assert delivered(broker, "orders", b"x") is None
        broker.on(ApiKey.PRODUCE, error="TOPIC_AUTHORIZATION_FAILED")
        port = broker.port
        broker.kill9()
        broker.start()
        assert broker.port == port
        assert delivered(broker, "orders", b"y") is None
        assert [record.value for record in broker.records("orders")] == [b"x", b"y"]


def test_topics(broker: Broker) -> None:
    broker.create_topics({"a": 2, "b": 3}, cleanup_policy="compact")
    broker.create_topics({"b": 7})  # it is there, and stays as it is
    assert {name: broker.topics()[name] for name in "ab"} == {"a": 2, "b": 3}
    broker.delete_topic("a")
    assert "a" not in broker.topics()
    with pytest.raises(KafkaError, match="nonsense"):
        broker.create_topic(cleanup_policy="nonsense")


def test_arguments_that_cannot_be(broker: Broker) -> None:
    with pytest.raises(ValueError, match="no such error: 'NO_LEADER'"):
        broker.on(ApiKey.PRODUCE, error="NO_LEADER")
    with pytest.raises(ValueError, match="dropped"):
        broker.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", drop=True)
    with pytest.raises(RuntimeError, match="no such order: nothing"):
        broker._tell({"op": "nothing"})
    with pytest.raises(BrokerFailed), Broker({"num.io.threads": 0}):
        pass


def test_an_external_broker_can_be_looked_at_and_not_be_made_to_fail(
    broker: Broker, topic: str
) -> None:
    other = ExternalBroker(broker.bootstrap)
    assert delivered(broker, topic, b"x") is None
    assert [record.value for record in other.records(topic)] == [b"x"]
    forbidden: list[Callable[[], Any]] = [
        lambda: other.on(ApiKey.PRODUCE), lambda: other.delay(ApiKey.FETCH, ms=1),
        other.drop_connections, other.requests, lambda: other.clock,
    ]  # fmt: skip
    for each in forbidden:
        with pytest.raises(RuntimeError, match="external broker"):
            each()
    other.clear()
    other.close()


def test_the_container_that_is_none() -> None:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_env("KAFKA_NUM_PARTITIONS", "4") as it:
        Confluent(it.get_bootstrap_server()).produce("made", [Record(b"x")])
        assert it.broker is not None and it.broker.topics()["made"] == 4
        host = f"{it.get_container_host_ip()}:{it.get_exposed_port(9093)}"
        assert host == it.get_bootstrap_server()
        assert b"started (kbroker)" in it.get_logs()[0]
    with pytest.raises(RuntimeError, match="not been started"):
        it.get_bootstrap_server()


def test_records_older_than_a_topics_retention_go(broker: Broker) -> None:
    """A week and an hour pass in the broker; a topic that keeps its records for ever has them."""
    kept = broker.create_topic(retention_ms=-1)
    topic = broker.create_topic()
    for name in (kept, topic):
        assert delivered(broker, name, b"old") is None
    broker.apply_retention()
    assert [r.value for r in broker.records(topic)] == [b"old"]
    broker.clock.advance(hours=169)
    broker.apply_retention()
    assert broker.records(topic) == []
    assert [r.value for r in broker.records(kept)] == [b"old"]
