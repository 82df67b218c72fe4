"""DescribeProducers (61): the producers that have written to a partition with a producer id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._transactions import Producer, with_clock
from tests.parity.cases.describe_log_dirs import produce
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch

book = Book()
cases = book.cases


def ask(*topics: tuple[str, Sequence[int]]) -> Any:
    return build(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        topics=[{"name": name, "partition_indexes": list(indexes)} for name, indexes in topics],
    )


def new_producer(talk: Talk) -> int:
    """A producer id of its own; the cases tell them apart by the order of their first meeting."""
    answer = talk.quietly(build(ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout=60_000))
    return int(answer.producer_id)


def batch(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, at: int = 1000
) -> bytes:
    records = [Record(b"v", timestamp_ms=at + number) for number in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


@book.case("nobody")
def no_producer(talk: Talk) -> None:
    talk.ask(ask((talk.topic(partitions=2), [0, 1])))


@book.case("producers without an id do not show")
def without_id(talk: Talk) -> None:
    name = talk.topic()
    produce(talk, name, 0, build_batch([b"a"]))
    talk.ask(ask((name, [0])))


@book.case("one producer", over={"one record": 1, "five records": 5})
def one(talk: Talk, count: int) -> None:
    name = talk.topic(partitions=2)
    produce(talk, name, 1, batch(new_producer(talk), 0, count=count))
    talk.ask(ask((name, [0, 1])))


@book.case("a producer goes on")
def goes_on(talk: Talk) -> None:
    name, producer = talk.topic(), new_producer(talk)
    for sequence in range(7):
        produce(talk, name, 0, batch(producer, sequence, at=1000 * sequence))
    talk.ask(ask((name, [0])))
    produce(talk, name, 0, batch(producer, 7, at=5))
    talk.ask(ask((name, [0])))


@book.case("a duplicate and a gap change nothing")
def duplicate(talk: Talk) -> None:
    name, producer = talk.topic(), new_producer(talk)
    first = batch(producer, 0, count=3)
    produce(talk, name, 0, first, first, batch(producer, 9))
    talk.ask(ask((name, [0])))


@book.case("a higher epoch begins anew, a lower one is refused")
def epochs(talk: Talk) -> None:
    name, producer = talk.topic(), new_producer(talk)
    produce(talk, name, 0, batch(producer, 0, epoch=3), batch(producer, 1, epoch=3))
    talk.ask(ask((name, [0])))
    produce(talk, name, 0, batch(producer, 0, epoch=5, at=7000))
    talk.ask(ask((name, [0])))
    produce(talk, name, 0, batch(producer, 1, epoch=4, at=9000))
    talk.ask(ask((name, [0])))


@book.case("a first sequence that is not 0")
def late(talk: Talk) -> None:
    name = talk.topic()
    produce(talk, name, 0, batch(new_producer(talk), 17, count=2))
    talk.ask(ask((name, [0])))


@book.case("sequences wrap")
def wrap(talk: Talk) -> None:
    name, producer = talk.topic(), new_producer(talk)
    produce(talk, name, 0, batch(producer, 2**31 - 2, count=2), batch(producer, 0, count=3))
    talk.ask(ask((name, [0])))


@book.case("a batch that wraps within itself")
def wrap_within(talk: Talk) -> None:
    name, producer = talk.topic(), new_producer(talk)
    produce(talk, name, 0, batch(producer, 2**31 - 1, count=3))
    talk.ask(ask((name, [0])))


@book.case("the broker's time", over={"now": 0})
def broker_time(talk: Talk, _: int) -> None:
    name = talk.topic(configs={"message.timestamp.type": "LogAppendTime"})
    produce(talk, name, 0, batch(new_producer(talk), 0))

    def view(data: Any) -> Any:
        for topic in data["topics"]:
            for partition in topic["partitions"]:
                for producer in partition["active_producers"]:
                    producer["last_timestamp"] = producer["last_timestamp"] > 1_600_000_000_000
        return data

    talk.ask(ask((name, [0])), view=view)


WAYS: dict[str, list[tuple[str, list[int]]]] = {
    "no topics": [],
    "no partitions": [("t", [])],
    "a partition that is not there": [("t", [9, 0])],
    "below zero": [("t", [-1])],
    "a partition twice": [("t", [0, 0])],
    "a topic twice": [("t", [0]), ("t", [1])],
    "the same twice": [("t", [0]), ("t", [0])],
    "backwards": [("t", [2, 1, 0])],
    "no such topic": [("none", [0, 1])],
    "no such topic beside one": [("none", [0]), ("t", [1])],
    "a bad name": [("a b", [0]), ("t", [1])],
    "a long name": [("a" * 250, [0])],
    "an empty name": [("", [0])],
    "the metadata log": [("__cluster_metadata", [0])],
}


@book.case("asked for", over=WAYS)
def ways(talk: Talk, topics: list[tuple[str, list[int]]]) -> None:
    produce(talk, talk.topic(partitions=3), 0, batch(new_producer(talk), 0))
    own = {name: talk.name(name) for name in ("t", "none")}
    talk.ask(ask(*((own.get(name, name), indexes) for name, indexes in topics)))


@book.case("a topic that is gone")
def gone(talk: Talk) -> None:
    name = talk.topic()
    produce(talk, name, 0, batch(new_producer(talk), 0))
    talk.delete(name)
    talk.ask(ask((name, [0])))


@book.case("in transactions", over={"v4": 4, "v5": 5}, setup="coordinators")
def in_transactions(talk: Talk, ended_by: int) -> None:
    """One that is open, committed, aborted, and open once more beside another producer's."""
    name, one = talk.topic(), Producer(talk)
    two = Producer(talk, "b")
    for committed in (True, False):
        one.begin(name)
        talk.ask(ask((name, [0])), view=with_clock)
        one.write(name, 0, b"a", b"b")
        one.write(name)
        talk.ask(ask((name, [0])), view=with_clock)
        one.end(committed=committed, version=ended_by)
        talk.ask(ask((name, [0])), view=with_clock)
    for each in (two, one):
        each.begin(name)
        each.write(name)
    talk.ask(ask((name, [0])), view=with_clock)


@book.case("unknown tagged fields")
def unknown_tags(talk: Talk) -> None:
    name = talk.topic()
    talk.ask(tagged(ask((name, [0])), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short")
def cut(talk: Talk) -> None:
    request = ask(("t", [0]))
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(), version=1))
