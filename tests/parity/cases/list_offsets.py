"""ListOffsets (2): every question in every version, epochs, and partitions that are not there."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.data import T0, batch, changed, records, stored, topic
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk
from tests.support.record_batches import CODECS, Record, build_batch

VERSIONS = range(1, 12)
SOME = (1, 4, 6, 11)  # the oldest, with epochs, in the newer encoding, the newest
Partition = tuple[int, int] | tuple[int, int, int]  # index, timestamp, leader epoch

book = Book()
cases = book.cases


def ask(
    version: int, *topics: tuple[str, list[Partition]], replica: int = -1, isolation: int = 0
) -> Any:
    return build(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=replica,
        isolation_level=isolation,
        timeout=1_000,
        topics=[
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "timestamp": timestamp,
                        "current_leader_epoch": epoch[0] if epoch else -1,
                    }
                    for index, timestamp, *epoch in partitions
                ],
            }
            for name, partitions in topics
        ],
    )


@book.case(
    "an empty partition",
    versions=VERSIONS,
    over={f"question {question}": question for question in range(-8, 1)},
)
def empty(talk: Talk, version: int, question: int) -> None:
    talk.ask(ask(version, (talk.topic(), [(0, question)])))


@book.case("unknown ones among others", versions=VERSIONS)
def mixed(talk: Talk, version: int) -> None:
    known = (talk.topic(), [(0, -1), (9, -1), (-1, -1)])
    talk.ask(ask(version, known, (talk.name("none"), [(0, -2), (1, -9)])))


@book.case("a partition twice", versions=SOME)
def twice(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (talk.topic(partitions=2), [(0, -1), (0, -2), (1, -1)])))


@book.case("from a replica", versions=SOME)
def from_a_replica(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (talk.topic(), [(0, -1)]), replica=1))


@book.case("a leader epoch", versions=(4, 6, 11), over={str(e): e for e in (-1, 0, 5)})
def leader_epoch(talk: Talk, version: int, epoch: int) -> None:
    talk.ask(ask(version, (talk.topic(), [(0, -1, epoch)])))


# --- by time --------------------------------------------------------------------------------------

MOMENTS = (-7, -3, -2, -1, 0, T0 - 1, T0, T0 + 1, T0 + 5, T0 + 10, T0 + 11, T0 + 40, T0 + 41)


def at(*deltas: int, codec: str = "none") -> bytes:
    return build_batch([Record(b"v", None, T0 + delta) for delta in deltas], codec=codec)


LOGS: dict[str, list[bytes]] = {
    "in order": [at(0, 1, 2), at(10, 11), at(40)],
    "not in order": [at(10, 1, 40, 5), at(0), at(11, 3), at(2)],
    "all alike": [at(5, 5, 5), at(5), at(5, 5)],
    "packed": [at(0, 10, 5, codec="gzip"), at(11, 40, 2, codec="lz4"), at(3, codec="zstd")],
    "packed in snappy": [at(40, 0, 11, codec="snappy"), at(1, 41, codec="snappy")],
    "without a time": [build_batch([Record(b"v", None, -1), Record(b"v", None, -1)])],
    "without a time at first": [build_batch([Record(b"v", None, -1)]), at(3)],
    "of 1970": [build_batch([Record(b"v", None, 0), Record(b"v", None, 7)]), at(0)],
    "a largest time that is not true": [changed(at(0, 10), max_timestamp=T0 + 40)],
}


@book.case("times", versions=SOME, over=LOGS)
def times(talk: Talk, version: int, batches: list[bytes]) -> None:
    name = topic(talk)
    stored(talk, name, *batches)
    for moment in MOMENTS:
        talk.ask(ask(version, (name, [(0, moment)])))


@book.case("the ends of what is written", versions=SOME, over={"0": 0, "1": 1})
def ends(talk: Talk, version: int, isolation: int) -> None:
    name = topic(talk, partitions=2)
    stored(talk, name, batch(b"a", b"b"), batch(b"c"))
    for question in range(-6, 0):
        asked = ask(version, (name, [(0, question), (1, question)]), isolation=isolation)
        talk.ask(asked)


@book.case("an isolation level", versions=(2, 6, 11), over={str(i): i for i in (-1, 2)})
def isolation_level(talk: Talk, version: int, isolation: int) -> None:
    talk.ask(ask(version, (topic(talk), [(0, -1)]), isolation=isolation))


@book.case("several segments", versions=(1, 4, 7, 11), over={codec: codec for codec in CODECS})
def segments(talk: Talk, version: int, codec: str) -> None:
    name = topic(talk, segment_bytes="1048576", max_message_bytes="1000000")
    large = bytes(400_000)
    stored(
        talk,
        name,
        *(
            build_batch(
                [Record(large, None, T0 + t), Record(b"v", None, T0 + t + 1)],
                codec="none" if number % 2 else codec,
            )
            for number, t in enumerate((0, 30, 10, 20, 5))
        ),
    )
    for moment in (-3, T0, T0 + 1, T0 + 6, T0 + 11, T0 + 21, T0 + 30, T0 + 31, T0 + 32):
        talk.ask(ask(version, (name, [(0, moment)])))


@book.case("log append time", versions=(1, 4, 7, 11))
def append_time(talk: Talk, version: int) -> None:
    name = topic(talk, message_timestamp_type="LogAppendTime")
    stored(talk, name, batch(b"a", b"b"), batch(b"c"))
    for moment in (T0, 4_000_000_000_000):
        talk.ask(ask(version, (name, [(0, moment)])), view=without_clock)
    if version >= 7:
        talk.ask(ask(version, (name, [(0, -3)])), view=without_clock)


def without_clock(data: Any) -> Any:
    """The times are a broker's, and which of them is the largest is a matter of milliseconds."""
    for each in data["topics"]:
        for partition in each["partitions"]:
            if partition["timestamp"] is not None and partition["timestamp"] > T0:
                partition["timestamp"] = "now"
                partition["offset"] = "some"
    return data


@book.case("from a debugging replica", versions=SOME, over={str(r): r for r in (-2, -3, 0, 9)})
def from_others(talk: Talk, version: int, replica: int) -> None:
    name = topic(talk)
    stored(talk, name, *[build_batch(records(b"x"))] * 2)
    for question in (-1, -2, T0):
        talk.ask(ask(version, (name, [(0, question)]), replica=replica))


@book.case("nothing", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, (topic(talk), [])))


@book.case("a version that is refused", over={str(v): v for v in (-1, 0, 12)})
def refused(talk: Talk, version: int) -> None:
    body = body_of(ask(1, (topic(talk), [(0, -1)])))
    talk.ask(Raw(ApiKey.LIST_OFFSETS, version, body))


@book.case("a body that is cut", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    entity = ask(version, (topic(talk), [(0, -1)]))
    talk.ask(raw(entity, body_of(entity)[:-8]))


@book.case("unknown tagged fields", versions=range(6, 12))
def tags(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (topic(talk), [(0, -1)])), tags={9: b"abc"}, header_tags={0: b""})
