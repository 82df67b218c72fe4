"""Requests that depend on each other: producers, sessions, long polls, pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.data import (
    FETCH_IDS,
    PRODUCER,
    batch,
    fetch,
    idempotent,
    in_short,
    list_offsets,
    part,
    produce,
    stored,
    topic,
)
from tests.parity.requests import build
from tests.parity.talk import Connection, Talk

book = Book()
cases = book.cases

INT_MAX = 2**31 - 1
UNKNOWN_ID = UUID(int=0xABCD)
PRODUCES = (3, 8, 13)
SESSIONS = (7, 11, 12, 13, 18)
LONG_POLLS = (4, 7, 12, 13, 18)


# --- idempotent producers -------------------------------------------------------------------------


def each(talk: Talk, version: int, name: str, batches: Sequence[bytes], acks: int = -1) -> None:
    for data in batches:
        talk.ask(produce(talk, version, (name, {0: data}), acks=acks), view=in_short)
    talk.ask(fetch(talk, 12, (name, [part(0)])), view=in_short)


def run(*sequences: int, epoch: int = 0) -> list[bytes]:
    return [idempotent(s, b"%d" % s, epoch=epoch) for s in sequences]


PRODUCER_STORIES: dict[str, list[bytes]] = {
    "in order": run(0, 1, 2, 3),
    "the last again": run(0, 1, 1),
    "the first again": run(0, 1, 0),
    "the fifth last again": run(0, 1, 2, 3, 4, 0),
    "the sixth last again": run(0, 1, 2, 3, 4, 5, 0),
    "a gap": run(0, 2),
    "a gap filled": run(0, 2, 1, 2),
    "back": run(0, 1, 2, 3, 4, 5, 6, 7, 3, 1),
    "an unknown producer in the middle": run(17, 18, 20),
    "a duplicate of several records": [
        idempotent(0, b"a", b"b", b"c"),
        idempotent(3, b"d", b"e"),
        idempotent(0, b"a", b"b", b"c"),
        idempotent(3, b"d", b"e"),
    ],
    "part of a batch again": [
        idempotent(0, b"a", b"b", b"c"),
        idempotent(0, b"a"),
        idempotent(1, b"b", b"c"),
        idempotent(2, b"c", b"d"),
    ],
    "a new epoch": [*run(0, 1), *run(0, 1, epoch=1)],
    "a new epoch not at 0": [*run(0, 1), *run(2, epoch=1), *run(0, epoch=1)],
    "an old epoch": [*run(0), *run(0, epoch=1), *run(1), *run(1, epoch=1)],
    "the old epoch's batch again": [*run(0, 1), *run(0, epoch=3), *run(1), *run(1, epoch=2)],
    "epochs far apart": [*run(0, epoch=5), *run(0, epoch=32767), *run(1, epoch=32767)],
    "wrapping round": [
        idempotent(INT_MAX - 1, b"a", b"b"),
        idempotent(0, b"c"),
        idempotent(1, b"d"),
        idempotent(INT_MAX - 1, b"a", b"b"),
        idempotent(0, b"c"),
    ],
    "wrapping inside a batch": [
        idempotent(INT_MAX - 1, b"a", b"b", b"c", b"d"),
        idempotent(2, b"e"),
        idempotent(INT_MAX - 1, b"a", b"b", b"c", b"d"),
        idempotent(4, b"f"),
    ],
    "two producers": [
        idempotent(0, b"a"),
        idempotent(0, b"b", producer=PRODUCER + 1),
        idempotent(1, b"c"),
        idempotent(5, b"d", producer=PRODUCER + 1),
        idempotent(1, b"e", producer=PRODUCER + 1),
    ],
    "with batches of no producer between": [*run(0), batch(b"x"), *run(1, 0), batch(b"y"), *run(3)],
    "a damaged one, then whole": [
        *run(0),
        idempotent(1, b"1")[:17] + b"\0\0\0\1" + idempotent(1, b"1")[21:],
        *run(1),
    ],
    "packed in gzip": [idempotent(n, b"x" * 40, codec="gzip") for n in (0, 1, 1, 3, 2)],
}


@book.case("a producer", versions=PRODUCES, over=PRODUCER_STORIES)
def producer(talk: Talk, version: int, batches: list[bytes]) -> None:
    each(talk, version, topic(talk), batches)


@book.case("a producer with acks 1", versions=PRODUCES)
def producer_acks(talk: Talk, version: int) -> None:
    each(talk, version, topic(talk), run(0, 1, 1, 3, 2), acks=1)


@book.case("a producer of a topic with log append time", versions=PRODUCES)
def producer_append_time(talk: Talk, version: int) -> None:
    each(talk, version, topic(talk, message_timestamp_type="LogAppendTime"), run(0, 1, 0, 3))


@book.case("a producer on two partitions", versions=PRODUCES)
def producer_partitions(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    for data in run(0, 1, 1, 3):
        asked = produce(talk, version, (name, {0: data, 1: data}))
        talk.ask(asked, view=in_short)
    asked = produce(talk, version, (name, {0: run(2)[0], 1: run(7)[0]}))
    talk.ask(asked, view=in_short)


@book.case("a producer with five in flight", versions=PRODUCES)
def in_flight(talk: Talk, version: int) -> None:
    """A refused batch takes those after it along, and none of another partition."""
    name = topic(talk, partitions=2)
    batches = [*run(0, 1), idempotent(2, b"2")[:17] + b"\0\0\0\1" + b"junk" * 12, *run(3, 4)]
    talk.main.hold()
    for data in batches:
        talk.send(produce(talk, version, (name, {0: data, 1: run(0)[0]})))
    talk.main.release()
    for _ in batches:
        talk.receive(view=in_short)
    talk.ask(fetch(talk, 12, (name, [part(0), part(1)])), view=in_short)


# --- sessions -------------------------------------------------------------------------------------


class Session:
    """A client that keeps a fetch session. Every answer is recorded."""

    def __init__(
        self, talk: Talk, version: int, *topics: Any, on: Connection | None = None
    ) -> None:
        self.talk, self.version = talk, version
        self.connection = on or talk.main
        self.id, self.epoch = 0, 0
        self.ask(*topics)

    def ask(self, *topics: Any, epoch: int | None = None, **how: Any) -> Any:
        if epoch is not None:
            self.epoch = epoch
        session = (self.id, self.epoch)
        asked = fetch(self.talk, self.version, *topics, session=session, **how)
        answer = self.connection.ask(asked, view=in_short)
        if answer is not None and self.epoch == 0:
            self.id = answer.session_id
        self.epoch = 1 if self.epoch == INT_MAX else self.epoch + 1
        return answer


@book.case("a session", versions=range(7, 19))
def session(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=3)
    stored(talk, name, batch(b"a"), batch(b"b"))
    fetched = Session(talk, version, (name, [part(0), part(1), part(2)]))
    fetched.ask()  # the same offsets: the same records are read again
    fetched.ask((name, [part(0, 2)]))
    fetched.ask()  # nothing new
    stored(talk, name, batch(b"c"), partition=1)
    fetched.ask()  # only the partitions that changed
    fetched.ask((name, [part(1, 1)]))
    fetched.ask(forgotten=[(name, [1])])
    stored(talk, name, batch(b"d"), partition=1)
    stored(talk, name, batch(b"e"), partition=2)
    fetched.ask()
    fetched.ask((name, [part(1, 1)]))  # and back again


@book.case("a session with several topics", versions=SESSIONS)
def session_topics(talk: Talk, version: int) -> None:
    first, second = topic(talk, "a", partitions=2), topic(talk, "b")
    fetched = Session(talk, version, (first, [part(0), part(1)]), (second, [part(0)]))
    stored(talk, first, batch(b"a"))
    stored(talk, first, batch(b"b"), partition=1)
    stored(talk, second, batch(b"c"))
    fetched.ask()
    fetched.ask((second, [part(0, 1)]), (first, [part(1, 1)]))
    fetched.ask(forgotten=[(first, [0, 1]), (second, [0])])
    fetched.ask()


@book.case("a session emptied", versions=SESSIONS)
def session_emptied(talk: Talk, version: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]))
    fetched.ask(forgotten=[(name, [0])])
    fetched.ask()
    fetched.ask((name, [part(0)]))


@book.case("forgetting what is not there", versions=SESSIONS)
def session_forget(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    fetched = Session(talk, version, (name, [part(0)]))
    fetched.ask(forgotten=[(name, [1, 77])])
    fetched.ask((name, [part(1)]), forgotten=[(name, [1])])
    stored(talk, name, batch(b"x"), partition=1)
    fetched.ask()


@book.case(
    "an epoch that is not next", versions=SESSIONS, over={str(e): e for e in (-2, 2, 5, INT_MAX)}
)
def session_epoch(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]))
    fetched.ask(epoch=epoch)
    fetched.ask(epoch=1)
    fetched.ask()


@book.case("an unknown session", versions=SESSIONS, over={str(e): e for e in (-2, -1, 0, 1, 9)})
def session_unknown(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk)
    asked = fetch(talk, version, (name, [part(0)]), session=(123_456_789, epoch))
    talk.ask(asked, view=in_short)


@book.case("session 0", versions=SESSIONS, over={str(e): e for e in (-2, 1, 2)})
def session_zero(talk: Talk, version: int, epoch: int) -> None:
    asked = fetch(talk, version, (topic(talk), [part(0)]), session=(0, epoch))
    talk.ask(asked, view=in_short)


@book.case("a session closed", versions=SESSIONS, over={"-1": -1, "0": 0})
def session_closed(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]))
    first = fetched.id
    fetched.ask((name, [part(0)]), epoch=epoch)
    asked = fetch(talk, version, session=(first, 1))
    talk.ask(asked, view=in_short)


@book.case("a session without partitions", versions=SESSIONS)
def session_of_nothing(talk: Talk, version: int) -> None:
    fetched = Session(talk, version)
    fetched.ask((topic(talk), [part(0)]))


@book.case("an error in a session", versions=SESSIONS)
def session_error(talk: Talk, version: int) -> None:
    """Answered each time, and once more when it is over."""
    name = topic(talk, partitions=2)
    stored(talk, name, batch(b"a"))
    fetched = Session(talk, version, (name, [part(0, 7), part(1)]))
    fetched.ask()
    fetched.ask()
    fetched.ask((name, [part(0, 1)]))
    fetched.ask()


@book.case("an unknown partition in a session", versions=SESSIONS)
def session_unknown_partition(talk: Talk, version: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0), part(5)]))
    fetched.ask()
    fetched.ask(forgotten=[(name, [5])])
    fetched.ask()


@book.case("an unknown topic in a session", versions=SESSIONS)
def session_unknown_topic(talk: Talk, version: int) -> None:
    wanted = talk.name("none") if version < FETCH_IDS else UNKNOWN_ID
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]), (wanted, [part(0)]))
    fetched.ask()
    stored(talk, name, batch(b"a"))
    fetched.ask()


@book.case("a topic deleted under a session", versions=SESSIONS)
def session_deleted(talk: Talk, version: int) -> None:
    name, other = topic(talk, "a"), topic(talk, "b")
    stored(talk, name, batch(b"a"))
    fetched = Session(talk, version, (name, [part(0)]), (other, [part(0)]))
    talk.delete(name)
    fetched.ask()
    fetched.ask()


@book.case(
    "a topic made again under a session",
    versions=SESSIONS,
    over={"alone": False, "beside another": True},
)
def session_made_again(talk: Talk, version: int, beside: bool) -> None:
    name = topic(talk, "a", partitions=2)
    others = [(topic(talk, "b"), [part(0)])] if beside else []
    fetched = Session(talk, version, (name, [part(0), part(1)]), *others)
    talk.delete(name)
    topic(talk, "a")  # without a second partition
    fetched.ask(max_wait=8_000, min_bytes=1)
    fetched.ask()


@book.case("names and ids in one session", versions=(12, 13))
def session_mixed(talk: Talk, version: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]))
    fetched.version = 25 - version
    fetched.ask((name, [part(0)]))
    fetched.ask()
    fetched.version = version
    fetched.ask(epoch=1)


@book.case("a session on two connections", versions=SESSIONS)
def session_moves(talk: Talk, version: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0)]))
    fetched.connection = talk.connect()
    fetched.ask()
    stored(talk, name, batch(b"a"))
    fetched.ask()


@book.case("the order in a session", versions=SESSIONS)
def session_order(talk: Talk, version: int) -> None:
    """A partition whose data was returned goes to the end of the line."""
    name = topic(talk, partitions=4)
    for partition in range(4):
        stored(talk, name, batch(b"x" * 50), batch(b"y" * 50), partition=partition)
    fetched = Session(talk, version, (name, [part(p) for p in range(4)]))
    for _ in range(4):
        fetched.ask(max_bytes=130)


@book.case("a divergence in a session", versions=SESSIONS[2:])
def session_divergence(talk: Talk, version: int) -> None:
    name = topic(talk)
    stored(talk, name, batch(b"a"), batch(b"b"))
    fetched = Session(talk, version, (name, [part(0, 2, fetched_epoch=0)]))
    fetched.ask((name, [part(0, 5, fetched_epoch=0)]))
    fetched.ask(max_wait=5_000, min_bytes=1)
    fetched.ask((name, [part(0, 2, fetched_epoch=3)]))
    fetched.ask((name, [part(0, 1, fetched_epoch=0)]))


@book.case("leader epochs in a session", versions=SESSIONS[1:])
def session_leader_epoch(talk: Talk, version: int) -> None:
    name = topic(talk)
    fetched = Session(talk, version, (name, [part(0, epoch=0)]))
    fetched.ask((name, [part(0, epoch=3)]))
    fetched.ask()
    fetched.ask((name, [part(0, epoch=0)]))
    fetched.ask()


# --- long polls -----------------------------------------------------------------------------------


@book.case("a long poll woken", versions=LONG_POLLS, over={"1 byte": 1, "100 bytes": 100})
def woken(talk: Talk, version: int, min_bytes: int) -> None:
    name = topic(talk, partitions=2)
    asked = fetch(talk, version, (name, [part(0), part(1)]), max_wait=10_000, min_bytes=min_bytes)
    talk.send(asked)
    talk.nothing(60)
    stored(talk, name, batch(b"a"), partition=1)
    if min_bytes > 1:
        talk.nothing(60)
        stored(talk, name, batch(b"b"), batch(b"c"))
    talk.receive(view=lambda data: sorted_partitions(in_short(data), min_bytes))


def sorted_partitions(data: Any, min_bytes: int) -> Any:
    """A second append may come before the answer or after it: only the first one is compared."""
    if min_bytes > 1:
        for each_topic in data["responses"]:
            for partition in each_topic["partitions"]:
                partition["records"] = partition["records"][:130]
                partition["high_watermark"] = min(partition["high_watermark"], 1)
                partition["last_stable_offset"] = min(partition["last_stable_offset"], 1)
    return data


@book.case("a long poll that ends in time", versions=LONG_POLLS)
def timed_out(talk: Talk, version: int) -> None:
    name = topic(talk)
    stored(talk, name, batch(b"a"))
    asked = fetch(talk, version, (name, [part(0)]), max_wait=100, min_bytes=5000)
    talk.ask(asked, view=in_short)
    talk.ask(fetch(talk, version, (name, [part(0, 1)]), max_wait=60, min_bytes=1), view=in_short)


@book.case(
    "a long poll that does not wait",
    versions=LONG_POLLS,
    over={
        "an error": [part(0, 99), part(1)],
        "an unknown partition": [part(9), part(1)],
        "data": [part(2), part(1)],
    },
)
def at_once(talk: Talk, version: int, parts: list[dict[str, int]]) -> None:
    name = topic(talk, partitions=3)
    stored(talk, name, batch(b"a"), partition=2)
    asked = fetch(talk, version, (name, parts), max_wait=8_000, min_bytes=1)
    talk.ask(asked, view=in_short)


@book.case("a long poll that wants nothing", versions=LONG_POLLS)
def wants_nothing(talk: Talk, version: int) -> None:
    name = topic(talk)
    asked = fetch(talk, version, (name, [part(0)]), max_wait=8_000, min_bytes=0)
    talk.ask(asked, view=in_short)
    asked = fetch(talk, version, (name, [part(0)]), max_wait=-5, min_bytes=100)
    talk.ask(asked, view=in_short)


@book.case("a long poll of a session", versions=SESSIONS)
def session_poll(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    fetched = Session(talk, version, (name, [part(0), part(1)]))
    asked = fetch(talk, version, session=(fetched.id, 1), max_wait=10_000, min_bytes=1)
    talk.send(asked)
    talk.nothing(60)
    stored(talk, name, batch(b"a"), partition=1)
    talk.receive(view=in_short)
    fetched.ask((name, [part(1, 1)]), epoch=2, max_wait=80, min_bytes=1)


@book.case("a long poll of a topic that is deleted", versions=(4, 12, 13))
def poll_deleted(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.send(fetch(talk, version, (name, [part(0)]), max_wait=1_500, min_bytes=1))
    talk.nothing(60)
    talk.delete(name)
    talk.receive(view=in_short)


@book.case(
    "a long poll beside what is not there",
    versions=LONG_POLLS,
    over={"a topic": True, "a partition": False},
)
def beside_nothing(talk: Talk, version: int, no_topic: bool) -> None:
    """It waits for the topic that is there, and is answered about the rest then."""
    name = topic(talk)
    wanted = talk.name("none") if version < FETCH_IDS else UNKNOWN_ID
    missing = (wanted, [part(0)]) if no_topic else (name, [part(7)])
    asked = fetch(talk, version, missing, (name, [part(0)]), max_wait=10_000, min_bytes=1)
    talk.send(asked)
    talk.nothing(60)
    stored(talk, name, batch(b"a"))
    talk.receive(view=in_short)
    talk.ask(fetch(talk, version, missing, max_wait=8_000, min_bytes=1), view=in_short)


@book.case("a long poll of a session beside what is not there", versions=SESSIONS)
def session_beside_nothing(talk: Talk, version: int) -> None:
    name = topic(talk)
    wanted = talk.name("none") if version < FETCH_IDS else UNKNOWN_ID
    fetched = Session(talk, version, (wanted, [part(0)]), (name, [part(0), part(7)]))
    talk.send(fetch(talk, version, session=(fetched.id, 1), max_wait=10_000, min_bytes=1))
    talk.nothing(60)
    stored(talk, name, batch(b"a"))
    talk.receive(view=in_short)
    fetched.ask(epoch=2, forgotten=[(name, [0])], max_wait=8_000, min_bytes=1)


@book.case("a partition twice in a session", versions=SESSIONS)
def session_twice(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    stored(talk, name, batch(b"a", b"b"), batch(b"c"), batch(b"d"))
    fetched = Session(talk, version, (name, [part(0), part(1), part(0, 2)]))
    fetched.ask()
    fetched.ask((name, [part(0, 4), part(0, 3), part(0, 2)]))
    fetched.ask((name, [part(0, 2)]), forgotten=[(name, [0])])


# --- pipelines ------------------------------------------------------------------------------------


def metadata(name: str) -> Any:
    topics = [{"name": name, "topic_id": None}]
    return build(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False)


def only_topics(data: Any) -> Any:
    return data["topics"]


@book.case("a mix in one piece", versions=(4, 9, 12, 13))
def mix(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    view = {ApiKey.METADATA: only_topics}
    requests = [
        produce(talk, version, (name, {0: batch(b"a")})),
        fetch(talk, version, (name, [part(0)])),
        metadata(name),
        produce(talk, version, (name, {0: batch(b"b"), 1: batch(b"c")})),
        list_offsets(7, name, -1, -1),
        produce(talk, version, (name, {5: batch(b"nowhere")})),
        fetch(talk, version, (name, [part(0), part(1)])),
        produce(talk, version, (name, {1: batch(b"d")}), acks=1),
        metadata(name),
        list_offsets(7, name, -1, -2),
    ]
    talk.main.hold()
    for request in requests:
        talk.send(request)
    talk.main.release()
    for request in requests:
        talk.receive(view=view.get(request.__api_key__, in_short))


@book.case("a mix with acks 0", versions=(4, 9, 13))
def silent_mix(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.main.hold()
    for number in range(3):
        data = {0: batch(b"%d" % number)}
        talk.send(produce(talk, version, (name, data), acks=0), answered=False)
        talk.send(list_offsets(7, name, -1))
    talk.main.release()
    for _ in range(3):
        talk.receive()


@book.case("a long poll before others", versions=(4, 12, 13))
def poll_first(talk: Talk, version: int) -> None:
    """Answers keep the order of the requests."""
    name = topic(talk)
    talk.main.hold()
    talk.send(fetch(talk, version, (name, [part(0)]), max_wait=300, min_bytes=1))
    talk.send(metadata(name))
    talk.send(list_offsets(7, name, -1))
    talk.main.release()
    talk.receive(view=in_short)
    talk.receive(view=only_topics)
    talk.receive()


@book.case("a frame in pieces", versions=(4, 12))
def pieces(talk: Talk, version: int) -> None:
    name = topic(talk)
    asked = produce(talk, version, (name, {0: batch(b"a")}))
    whole: list[bytes] = []
    talk.main.hold()
    talk.send(asked)
    talk.send(metadata(name))
    held, talk.main._held = talk.main._held or [], None
    whole = [b"".join(held)]
    for at in range(0, len(whole[0]), 7):
        talk.main.send_bytes(whole[0][at : at + 7])
    talk.receive(view=in_short)
    talk.receive(view=only_topics)


@book.case("something malformed between", versions=(4, 12))
def malformed_between(talk: Talk, version: int) -> None:
    """Earlier requests are answered; the connection ends; later ones are not carried out."""
    name = topic(talk)
    talk.send(produce(talk, version, (name, {0: batch(b"a")})))
    talk.receive(view=in_short)
    talk.main.hold()
    talk.send(metadata(name))
    talk.main.send_bytes(b"\0\0\0\x0c" + b"\0\1\0\x0c" + b"\0\0\0\7" + b"\xff\xff\xff\xff")
    talk.send(produce(talk, version, (name, {0: batch(b"b")})))
    talk.main.release()
    talk.receive(view=only_topics)
    talk.receive()
    other = talk.connect()
    other.ask(list_offsets(7, name, -1))
