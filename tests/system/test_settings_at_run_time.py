"""A broker's settings change while it serves, hold from the answer on, and survive its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.testing.plain import PlainBroker as Broker
from tests.parity.cases._configs import (
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    Change,
    describe,
    incremental,
)
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch
from tests.system.conftest import MakeBroker
from tests.system.test_configs_at_once import MESSAGE_TOO_LARGE, produce
from tests.unit.net.harness import eventually

LARGE = build_batch([Record(b"x" * 5000)])


def talk_with(broker: Broker) -> Talk:
    host, _, port = broker.bootstrap.rpartition(":")
    return Talk((host, int(port)), "settings")


def change(talk: Talk, name: str, *changes: Change, kind: int = BROKER) -> None:
    (response,) = talk.quietly(incremental(1, (kind, name, changes))).responses
    assert response.error_code.value == 0, response


def held(talk: Talk, key: str, *, kind: int = BROKER, name: str = "1") -> tuple[str | None, int]:
    """The value that holds and its source."""
    ((config,),) = [r.configs for r in talk.quietly(describe(4, kind, name, [key])).results]
    return config.value, config.config_source


def threads(broker: Broker, kernel_name: str) -> int:
    return sum(map(is_named, Path(f"/proc/{broker.pid}/task").iterdir(), repeat(kernel_name)))


def is_named(task: Path, wanted: str) -> bool:
    try:
        return (task / "comm").read_text().startswith(wanted)
    except (FileNotFoundError, ProcessLookupError):
        return False  # it ended meanwhile


@pytest.mark.parametrize("end", ["restart", "kill9"])
def test_they_survive_the_end_of_a_broker(make_broker: MakeBroker, end: str) -> None:
    broker = make_broker({"num.network.threads": 1}).start()
    talk = talk_with(broker)
    change(talk, "", ("message.max.bytes", SET, "2000"), ("num.io.threads", SET, "6"))
    change(talk, "1", ("num.io.threads", SET, "5"), ("num.network.threads", SET, "2"))
    change(talk, "a group/1", ("share.isolation.level", SET, "read_committed"), kind=GROUP)
    topic = talk.topic("before")
    talk.close()
    if end == "kill9":
        broker.kill9()
        broker.start()
    else:
        broker.restart()
    talk = talk_with(broker)
    assert held(talk, "num.io.threads") == ("5", 2)
    assert held(talk, "message.max.bytes") == ("2000", 3)
    isolation = held(talk, "share.isolation.level", kind=GROUP, name="a group/1")
    assert isolation == ("read_committed", 8)
    talk.settled(topic)  # after a kill its log may still be read
    # Not only listed: the log that was opened at the start has it, and the threads are there.
    assert produce(talk, topic, LARGE).error_code.value == MESSAGE_TOO_LARGE
    assert threads(broker, "network-") == 2
    eventually(lambda: threads(broker, "request-hand") == 5, "handlers have named themselves")
    change(talk, "1", ("num.io.threads", DELETE, None))
    assert held(talk, "num.io.threads") == ("6", 3)
    eventually(lambda: threads(broker, "request-hand") == 6)
    talk.close()


def test_topics_follow_settings_that_they_do_not_override(broker: Broker) -> None:
    talk = talk_with(broker)
    plain, own = talk.topic("plain"), talk.topic("own", configs={"max.message.bytes": "9000"})
    assert produce(talk, plain, LARGE).error_code.value == 0
    change(talk, "", ("message.max.bytes", SET, "2000"))
    assert produce(talk, plain, LARGE).error_code.value == MESSAGE_TOO_LARGE
    assert produce(talk, own, LARGE).error_code.value == 0
    change(talk, "1", ("message.max.bytes", SET, "7000"))
    assert produce(talk, plain, LARGE).error_code.value == 0
    change(talk, "1", ("message.max.bytes", DELETE, None))
    assert produce(talk, plain, LARGE).error_code.value == MESSAGE_TOO_LARGE
    assert produce(talk, talk.topic("new"), LARGE).error_code.value == MESSAGE_TOO_LARGE
    talk.close()


def test_loggers_say_more_and_less(broker: Broker) -> None:
    talk = talk_with(broker)
    change(talk, "1", ("kbroker.controller", SET, "ERROR"), kind=LOGGER)
    quiet = talk.topic("quiet")
    change(talk, "1", ("kbroker.controller", DELETE, None), kind=LOGGER)
    loud = talk.topic("loud")
    eventually(lambda: loud in broker.log_text())
    assert quiet not in broker.log_text()
    talk.close()


class Traffic:
    """Idempotent producers that never stop; each record is counted when it was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, producers: int) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(bootstrap, number))
            for number in range(producers)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _delivered(self, error: object, message: object) -> None:
        with self._lock:
            if error is None:
                self.acknowledged += 1
            else:
                self.failures.append(str(error))

    def _run(self, bootstrap: str, number: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        sent = 0
        while not self._ending.is_set():
            producer.produce(self.topic, b"%d-%d" % (number, sent), on_delivery=self._delivered)
            sent += 1
            producer.poll(0.001)
        assert producer.flush(60) == 0


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "read", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    eventually(lambda: _read_some(consumer, values) >= count, f"{count} records")
    consumer.close()
    return values


def _read_some(consumer: Consumer, values: list[bytes]) -> int:
    values += [message.value() for message in consumer.consume(10_000, timeout=0.5)]
    return len(values)


@pytest.mark.slow
def test_threads_come_and_go_under_producers_and_nothing_is_lost(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker({"num.network.threads": 2, "num.io.threads": 4}).start()
    talk = talk_with(broker)
    topic = talk.topic("traffic")
    talk.close()
    with Traffic(broker.bootstrap, topic, producers=3) as traffic:
        for network, handlers in ((4, 8), (2, 4), (1, 2), (2, 3), (3, 6), (2, 3), (1, 2)):
            before = traffic.acknowledged
            # A connection each time: the one before may have been closed with its thread.
            talk = talk_with(broker)
            change(
                talk,
                "1",
                ("num.network.threads", SET, str(network)),
                ("num.io.threads", SET, str(handlers)),
            )
            talk.close()
            eventually(
                lambda before=before: traffic.acknowledged > before + 300, "the traffic goes on"
            )
            eventually(lambda n=network: threads(broker, "network-") == n, "threads that are gone")
            eventually(lambda n=handlers: threads(broker, "request-hand") == n)
    assert traffic.failures == []
    values = read_all(broker.bootstrap, topic, traffic.acknowledged)
    assert len(values) == len(set(values)) == traffic.acknowledged
    for number in range(3):
        mine = [int(v.split(b"-")[1]) for v in values if v.startswith(b"%d-" % number)]
        assert mine == list(range(len(mine))), "out of order"
