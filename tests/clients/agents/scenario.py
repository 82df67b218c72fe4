"""The walk: what every client library does with one topic and one group, step by step.

Each step is a function of the Walk; WALK lists them in order. What a library cannot do is a fact
about the library, held in programs.LIBRARIES, and never a skip of a step that it can do. The walk
was tried against Apache Kafka before it was run against kbroker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import confluent_kafka

from kbroker.testing.process import ServerProcess
from tests.clients.adapters import CODECS, Confluent, Headers, Record
from tests.clients.agents.driver import Agent, Partition, Taken, comes_to_be, eventually
from tests.clients.agents.groups import Groups, State
from tests.clients.agents.programs import Library
from tests.support import batches

NOON_MS = 1_700_000_000_000
PARTITIONS = 4
LARGE_BYTES = 2_000_000
TOPIC_MAX_BYTES = 4_000_000
HEADERS: Headers = (
    ("trace", b"00-4bf9"),
    ("empty", b""),
    ("twice", b"first"),
    ("twice", b"second"),
    ("naïve ключ", bytes(range(256))),
)


class Walk(NamedTuple):
    library: Library
    agent: Agent
    server: ServerProcess
    groups: Groups
    topic: str
    group: str
    written: dict[int, list[Record]]  # by partition, in the order of their offsets

    @property
    def ends(self) -> dict[Partition, int]:
        return {(self.topic, number): len(self.written[number]) for number in self.written}

    def write(self, records: Iterable[tuple[int, Record]], codec: str = "none") -> None:
        """Through the agent; each record gets the offset after the one before it."""
        listed = list(records)
        wanted = []
        for number, record in listed:
            wanted.append(len(self.written[number]))
            self.written[number].append(record)
        assert self.agent.produce(self.topic, listed, codec) == wanted


def plain(count: int, stem: str) -> list[tuple[int, Record]]:
    """count records over all partitions."""
    return [
        (
            n % PARTITIONS,
            Record(f"{stem} {n}".encode() * 20, b"key %d" % n, HEADERS[:1], NOON_MS + 1000 * n),
        )
        for n in range(count)
    ]


def as_record(taken: Taken) -> Record:
    return Record(taken.value, taken.key, taken.headers, taken.timestamp_ms)


# -- records


def create_a_topic(walk: Walk) -> None:
    # The records' timestamps are years old: retention would take them.
    configs = {"max.message.bytes": str(TOPIC_MAX_BYTES), "retention.ms": "-1"}
    walk.agent.ask("create", topic=walk.topic, partitions=PARTITIONS, configs=configs)
    with Confluent(walk.server.bootstrap).consumer() as consumer:

        def usable() -> bool:  # Apache Kafka answers before that is so
            try:
                found = [consumer.offsets(walk.topic, number) for number in range(PARTITIONS)]
            except confluent_kafka.KafkaException:
                return False
            return found == [(0, 0)] * PARTITIONS

        eventually(usable, f"{walk.topic} is there and empty")


def write_with_every_codec(walk: Walk) -> None:
    for codec in CODECS:
        walk.write(plain(40, codec), codec)
    found = {
        batch.codec
        for number in range(PARTITIONS)
        for batch in batches.read_batches(walk.server.data_dir, walk.topic, number)
    }
    assert found == set(CODECS)


def write_odd_records(walk: Walk) -> None:
    odd = [
        Record(None, b"deleted", (), NOON_MS + 1),
        Record(b"", b"", (), NOON_MS + 2),
        Record(b"no key", None, (), NOON_MS + 3),
        Record(b"with headers", b"k", HEADERS, NOON_MS + 4),
        Record(bytes(range(256)) * 5, bytes(range(255, -1, -1)), (), NOON_MS + 5),
    ]
    walk.write((0, record) for record in odd)
    walk.write([(1, Record(b"large " * (LARGE_BYTES // 6), b"large", (), NOON_MS))], "none")
    walk.write([(1, Record(b"large " * (LARGE_BYTES // 6), b"large", (), NOON_MS))], "gzip")


def read_it_back(walk: Walk) -> None:
    for number, records in walk.written.items():
        found = walk.agent.read(walk.topic, number, 0, len(records))
        assert [each.offset for each in found] == list(range(len(records)))
        assert [as_record(each) for each in found] == records
    (found_last,) = walk.agent.read(walk.topic, 0, len(walk.written[0]) - 1, 1)
    assert as_record(found_last) == walk.written[0][-1]


def another_library_reads_it(walk: Walk) -> None:
    client = Confluent(walk.server.bootstrap)
    for number, records in walk.written.items():
        found = client.consume(walk.topic, len(records), number)
        assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in found] == records


def find_by_time(walk: Walk) -> None:
    walk.write((2, Record(b"later", None, (), NOON_MS + 10**6 + n)) for n in range(3))
    end = len(walk.written[2])
    for after_ms, wanted in ((0, end - 3), (1, end - 2), (2, end - 1)):
        stamp = NOON_MS + 10**6 + after_ms
        assert walk.agent.ask("offset_at", topic=walk.topic, partition=2, timestamp=stamp) == wanted


# -- groups


def collect(walk: Walk, wanted: dict[Partition, int], *names: str) -> None:
    """Take until every offset of wanted's (first seen by any of them) up to its end has come.

    Each member sees a partition's records in order and without a gap; a record may come again
    from the member that has the partition after a rebalance, never be passed over.
    """
    seen: dict[Partition, set[int]] = {at: set() for at in wanted}
    missing = dict(wanted)

    def all_came() -> bool:
        for name in names:
            for each in walk.agent.take(name):
                at = (each.topic, each.partition)
                assert as_record(each) == walk.written[each.partition][each.offset]
                seen[at].add(each.offset)
        for at, end in list(missing.items()):
            if end == 0 or (seen[at] and max(seen[at]) == end - 1):
                assert not seen[at] or seen[at] == set(range(min(seen[at]), end)), at
                del missing[at]
        return not missing

    try:
        eventually(all_came, f"{walk.library.name} gets every record")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; missing: {missing}") from None


def commit_all(walk: Walk, *names: str) -> None:
    """Take and commit until the group's offsets are the ends.

    After one more rebalance a member that has lost a partition has nothing of it to commit, and its
    owner reads it again from the committed offset.
    """

    def committed() -> dict[Partition, int]:
        for name in names:
            walk.agent.take(name)
            walk.agent.commit(name)
        return walk.groups.committed(walk.group)

    comes_to_be(committed, walk.ends)


def settle(walk: Walk, *names: str) -> list[set[Partition]]:
    """Wait until the members have all partitions between them, each its share."""
    everything = set(walk.ends)
    shares: list[set[Partition]] = []

    def settled() -> bool:
        shares[:] = [set(walk.agent.assigned(name).now) for name in names]
        fair = len(everything) // len(names)
        return set().union(*shares) == everything and all(len(s) == fair for s in shares)

    eventually(settled, f"{names} share {len(everything)} partitions")
    return shares


def one_member_reads_all(walk: Walk) -> None:
    walk.agent.join("first", walk.group, [walk.topic], walk.library.strategies[0])
    settle(walk, "first")
    collect(walk, walk.ends, "first")
    walk.agent.commit("first")
    assert walk.groups.committed(walk.group) == walk.ends
    comes_to_be(
        lambda: walk.groups.state(walk.group), State("STABLE", walk.library.strategies[0], 1)
    )


def a_second_joins_in_the_middle(walk: Walk) -> None:
    walk.write(plain(40, "before"))
    walk.agent.join("second", walk.group, [walk.topic], walk.library.strategies[0])
    walk.write(plain(40, "meanwhile"))
    settle(walk, "first", "second")
    walk.write(plain(40, "after"))
    collect(walk, walk.ends, "first", "second")
    commit_all(walk, "first", "second")
    comes_to_be(lambda: walk.groups.state(walk.group).members, 2)


def seek_back(walk: Walk) -> None:
    if not walk.library.seeks:
        return
    (at, *_) = sorted(walk.agent.assigned("second").now)
    walk.agent.ask("seek", name="second", topic=at[0], partition=at[1], offset=3)
    found: list[Taken] = []

    def came_again() -> bool:
        found.extend(each for each in walk.agent.take("second") if each.partition == at[1])
        return bool(found) and found[-1].offset == walk.ends[at] - 1

    eventually(came_again, f"{at} comes again from offset 3")
    assert [each.offset for each in found] == list(range(3, walk.ends[at]))


def the_first_leaves(walk: Walk) -> None:
    walk.agent.leave("first")
    walk.write(plain(20, "the second alone"))
    settle(walk, "second")
    collect(walk, walk.ends, "second")
    commit_all(walk, "second")


def all_leave(walk: Walk) -> None:
    walk.agent.leave("second")
    eventually(
        lambda: walk.groups.state(walk.group).name == "EMPTY", f"{walk.group} is without members"
    )
    assert walk.groups.committed(walk.group) == walk.ends


WALK: tuple[Callable[[Walk], None], ...] = (
    create_a_topic,
    write_with_every_codec,
    write_odd_records,
    read_it_back,
    another_library_reads_it,
    find_by_time,
    one_member_reads_all,
    a_second_joins_in_the_middle,
    seek_back,
    the_first_leaves,
    all_leave,
)
