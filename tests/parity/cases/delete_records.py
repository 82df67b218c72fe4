"""DeleteRecords (21): every offset in every version, and requests to a log that begins later."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases.list_offsets import ask as list_offsets
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch

VERSIONS = range(3)
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
FIRST_TIMESTAMP_MS = 1_600_000_000_000

book = Book()
cases = book.cases


def ask(version: int, *topics: tuple[str, list[tuple[int, int]]], timeout_ms: int = 30_000) -> Any:
    return build(
        ApiKey.DELETE_RECORDS,
        version,
        timeout=timeout_ms,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "offset": offset} for index, offset in partitions
                ],
            }
            for name, partitions in topics
        ],
    )


def produce(name: str, partition: int, records: int, **producer: int) -> Any:
    """A batch of records, a second apart."""
    batch = build_batch(
        [Record(b"%d" % n, b"k", timestamp_ms=FIRST_TIMESTAMP_MS + n) for n in range(records)],
        **producer,
    )
    return build(
        ApiKey.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": name, "partition_data": [{"index": partition, "records": batch}]}],
    )


def fetch(
    name: str,
    partition: int,
    offset: int,
    *,
    version: int = 12,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> Any:
    partitions = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
    ]
    return build(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[{"topic": name, "partitions": partitions}] if name else [],
        forgotten_topics_data=[],
        rack_id="",
    )


def filled(talk: Talk, batches: int = 2, records: int = 5, **topic: Any) -> str:
    """A topic with `batches` of so many `records` in partition 0."""
    name = talk.topic(**topic)
    for _ in range(batches):
        answer = talk.quietly(produce(name, 0, records))
        assert answer.responses[0].partition_responses[0].error_code.value == 0
    return name


def offsets(talk: Talk, name: str) -> None:
    talk.ask(list_offsets(7, (name, [(0, EARLIEST)])))
    talk.ask(list_offsets(7, (name, [(0, LATEST)])))


@book.case(
    "to an offset",
    versions=VERSIONS,
    over={str(n): n for n in (0, 1, 5, 7, 9, 10, -1, 11, 12, -2, -3, -(2**63), 2**63 - 1)},
)
def to(talk: Talk, version: int, offset: int) -> None:
    name = filled(talk)
    talk.ask(ask(version, (name, [(0, offset)])))
    offsets(talk, name)
    for place in (0, 4, 5, 9, 10, 11):
        talk.ask(fetch(name, 0, place))


@book.case("an empty partition", versions=VERSIONS, over={str(n): n for n in (0, -1, 1, -2)})
def empty(talk: Talk, version: int, offset: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, [(0, offset)])))
    offsets(talk, name)


@book.case("step by step", versions=VERSIONS)
def step_by_step(talk: Talk, version: int) -> None:
    name = filled(talk)
    for offset in (3, 1, 0, 3, 6, -1, 6, -1, 10):
        talk.ask(ask(version, (name, [(0, offset)])))
    talk.ask(produce(name, 0, 2))
    talk.ask(ask(version, (name, [(0, 11)])))
    offsets(talk, name)
    talk.ask(fetch(name, 0, 11))


@book.case("in one piece", versions=VERSIONS)
def pipelined(talk: Talk, version: int) -> None:
    name = filled(talk)
    talk.main.hold()
    talk.send(ask(version, (name, [(0, 4)])))
    talk.send(fetch(name, 0, 3))
    talk.send(produce(name, 0, 1))
    talk.send(ask(version, (name, [(0, -1)])))
    talk.send(fetch(name, 0, 11))
    talk.main.release()
    for _ in range(5):
        talk.receive()
    offsets(talk, name)


@book.case("partitions that are not there", versions=VERSIONS)
def unknown_partitions(talk: Talk, version: int) -> None:
    name = filled(talk, partitions=2)
    talk.ask(ask(version, (name, [(2, 0), (-1, 0), (2**31 - 1, -1), (-(2**31), 5)])))
    talk.ask(ask(version, (name, [(7, -5), (0, 3), (1, -1), (1, 99)])))
    offsets(talk, name)


@book.case("topics that are not there", versions=VERSIONS)
def unknown_topics(talk: Talk, version: int) -> None:
    for name in (talk.name("none"), "", "a/b", ".", "x" * 300, "__cluster_metadata"):
        talk.ask(ask(version, (name, [(0, 0), (1, -7)])))


@book.case("several", versions=VERSIONS)
def several(talk: Talk, version: int) -> None:
    one, two = filled(talk, name="one", partitions=3), filled(talk, name="two")
    talk.ask(
        ask(
            version,
            (one, [(2, 0), (0, 4), (1, 5)]),
            (talk.name("none"), [(0, 0)]),
            (two, [(0, -1)]),
        )
    )
    offsets(talk, one)
    offsets(talk, two)


@book.case("named twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = filled(talk, partitions=2)
    talk.ask(ask(version, (name, [(0, 2), (0, 3)])))
    talk.ask(ask(version, (name, [(0, 4)]), (name, [(1, 0)])))
    talk.ask(ask(version, (name, [(0, 5)]), (name, [(0, 6)])))
    talk.ask(ask(version, (name, [(0, 7), (0, 99)])))
    talk.ask(ask(version, (name, [(0, 99), (0, 8)])))
    offsets(talk, name)


@book.case("none", versions=VERSIONS)
def none(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, (talk.topic(), [])))
    talk.ask(ask(version, (talk.name("none"), [])))


@book.case("time-outs", versions=VERSIONS, over={"zero": 0, "less": -1, "least": -(2**31)})
def timeouts(talk: Talk, version: int, timeout_ms: int) -> None:
    name = filled(talk)
    talk.ask(ask(version, (name, [(0, 6), (1, 0)]), timeout_ms=timeout_ms))
    offsets(talk, name)


@book.case(
    "a clean-up policy",
    versions=VERSIONS,
    over={each or "none": each for each in ("compact", "delete", "compact,delete", "")},
)
def policy(talk: Talk, version: int, value: str) -> None:
    name = filled(talk, configs={"cleanup.policy": value})
    talk.ask(ask(version, (name, [(0, 99), (5, 0)])))
    talk.ask(ask(version, (name, [(0, 3)])))
    talk.ask(ask(version, (name, [(0, -1)])))
    offsets(talk, name)


@book.case("an internal topic", versions=VERSIONS, alone=True)
def internal(talk: Talk, version: int) -> None:
    topic = {"name": "__consumer_offsets", "num_partitions": -1, "replication_factor": -1}
    talk.quietly(build(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000))
    talk.settled("__consumer_offsets")
    talk.ask(ask(version, ("__consumer_offsets", [(0, 0), (0, -1)])))
    talk.ask(ask(version, ("__consumer_offsets", [(0, 5), (1000, 0)])))


@book.case("the next produce tells the start", versions=VERSIONS)
def produce_after(talk: Talk, version: int) -> None:
    name = filled(talk)
    talk.ask(ask(version, (name, [(0, 8)])))
    talk.ask(produce(name, 0, 3))
    talk.ask(ask(version, (name, [(0, -1)])))
    talk.ask(produce(name, 0, 1))
    talk.ask(fetch(name, 0, 13))


@book.case("a producer goes on", versions=VERSIONS)
def idempotent(talk: Talk, version: int) -> None:
    name = talk.topic()
    asked = build(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout=60_000)
    ident = {"producer_id": talk.quietly(asked).producer_id, "producer_epoch": 0}
    for sequence in (0, 2):
        talk.ask(produce(name, 0, 2, base_sequence=sequence, **ident))
    talk.ask(ask(version, (name, [(0, -1)])))
    talk.ask(produce(name, 0, 2, base_sequence=2, **ident))
    talk.ask(produce(name, 0, 2, base_sequence=4, **ident))
    offsets(talk, name)


@book.case("searches by time", versions=VERSIONS)
def times(talk: Talk, version: int) -> None:
    name = filled(talk)
    for offset in (3, 7, 9):
        talk.ask(ask(version, (name, [(0, offset)])))
        for time_ms in (0, FIRST_TIMESTAMP_MS + 2, FIRST_TIMESTAMP_MS + 4, FIRST_TIMESTAMP_MS + 5):
            talk.ask(list_offsets(7, (name, [(0, time_ms)])))
        talk.ask(list_offsets(8, (name, [(0, -4)])))


@book.case("the largest timestamp", versions=VERSIONS)
def max_timestamp(talk: Talk, version: int) -> None:
    name = filled(talk)
    talk.ask(ask(version, (name, [(0, 7)])))
    talk.ask(list_offsets(7, (name, [(0, MAX_TIMESTAMP)])))


@book.case("a session hears of the start", versions=VERSIONS)
def session(talk: Talk, version: int) -> None:
    name = filled(talk)
    first = talk.ask(fetch(name, 0, 10, session=(0, 0)), view=without_session)
    talk.ask(fetch("", 0, 0, session=(first.session_id, 1)), view=without_session)
    talk.ask(ask(version, (name, [(0, 6)])))
    talk.ask(fetch("", 0, 0, session=(first.session_id, 2)), view=without_session)
    talk.ask(fetch("", 0, 0, session=(first.session_id, 3)), view=without_session)
    talk.ask(ask(version, (name, [(0, -1)])))
    talk.ask(produce(name, 0, 1))
    talk.ask(ask(version, (name, [(0, -1)])))
    talk.ask(fetch("", 0, 0, session=(first.session_id, 4)), view=without_session)


def without_session(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "session_id": data["session_id"] != 0}


@book.case("a new topic of the same name", versions=VERSIONS)
def made_again(talk: Talk, version: int) -> None:
    name = filled(talk)
    talk.ask(ask(version, (name, [(0, -1)])))
    talk.delete(name)
    talk.ask(ask(version, (name, [(0, 0)])))
    filled(talk, batches=1)
    offsets(talk, name)
    talk.ask(ask(version, (name, [(0, 5)])))
    talk.ask(fetch(name, 0, 4))


@book.case("unknown tags")
def tags(talk: Talk) -> None:
    name = filled(talk)
    talk.ask(ask(2, (name, [(0, 3)])), tags={0: b"", 90: b"xyz"}, header_tags={7: b"h"})


@book.case("a body that ends too early", versions=VERSIONS, over={str(n): n for n in (0, 3, 12)})
def short(talk: Talk, version: int, size: int) -> None:
    request = ask(version, (talk.name(), [(0, 3)]))
    talk.ask(raw(request, body_of(request)[:size]))


@book.case("a body with something behind it", versions=VERSIONS)
def long(talk: Talk, version: int) -> None:
    request = ask(version, (talk.name("none"), [(0, 3)]))
    talk.ask(raw(request, body_of(request) + b"more"))


@book.case("topics that are null", versions=VERSIONS)
def null(talk: Talk, version: int) -> None:
    size = b"\x00" if version == VERSIONS[-1] else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.DELETE_RECORDS, version, size + bytes(6)))


@book.case("a version that is not there", over={str(n): n for n in (3, 4, -1, 32767)})
def no_version(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.DELETE_RECORDS, version, body_of(ask(2, (talk.name(), [(0, 3)])))))
