"""Transactions as applications use them, by seven libraries: what is committed is read, once; what
is aborted, open, or of a producer that was replaced is not.

Java's client, franz-go and sarama end a transaction with another epoch (KIP-890's second part),
the Python libraries and kafkajs keep theirs. Each reader here is another library than the writer,
so both ends are judged by foreign code.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.agents.driver import Agent, AgentError, eventually
from tests.clients.agents.groups import Groups
from tests.clients.agents.programs import LIBRARIES, Library
from tests.clients.conftest import MakeTopic

pytestmark = [pytest.mark.client, pytest.mark.timeout(240)]

Running = Callable[..., Agent]

WRITERS = [library for library in LIBRARIES if library.transactions]
LAST = b"the end"


@pytest.fixture(params=WRITERS, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


@pytest.fixture
def writer(library: Library, running: Running) -> Agent:
    return running(library)


@pytest.fixture
def reader(library: Library, running: Running) -> Agent:
    """The next library's, so that each reads what another has written."""
    following = WRITERS[(WRITERS.index(library) + 1) % len(WRITERS)]
    return running(following, 1)


def values(agent: Agent, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    return [each.value for each in agent.read(topic, partition, 0, count, committed=True)]


def test_committed_records_are_read_and_aborted_ones_are_not(
    writer: Agent, reader: Agent, make_topic: MakeTopic
) -> None:
    """In two partitions alike, and in the order of sending. A marker takes an offset each."""
    topic = make_topic(2)
    producer = writer.transactional("one", f"id-of-{topic}")
    for number in range(6):
        producer.begin()
        for partition in (0, 1):
            producer.put(topic, b"first of %d" % number, partition)
            producer.put(topic, b"second of %d" % number, partition)
        (producer.commit if number % 2 == 0 else producer.abort)()
    producer.close()
    expected = [b"%s of %d" % (each, n) for n in (0, 2, 4) for each in (b"first", b"second")]
    for partition in (0, 1):
        assert values(reader, topic, len(expected), partition) == expected
        everything = reader.read(topic, partition, 0, 12)
        offsets = [each.offset for each in everything]
        assert offsets == [3 * number + at for number in range(6) for at in (0, 1)]


def test_nothing_is_read_beyond_an_open_transaction(
    writer: Agent, reader: Agent, make_topic: MakeTopic
) -> None:
    """A later transaction of another producer waits for the earlier one to end."""
    topic = make_topic()
    early = writer.transactional("early", f"early-{topic}")
    late = writer.transactional("late", f"late-{topic}")
    early.begin()
    early.put(topic, b"early")
    late.begin()
    late.put(topic, b"late")
    late.commit()
    assert [each.value for each in reader.read(topic, 0, 0, 2)] == [b"early", b"late"]
    reader.tell("read", topic=topic, partition=0, offset=0, count=2, committed=True)
    early.commit()
    found = [each["offset"] for each in reader.answer()]
    assert found == [0, 1]
    early.close()
    late.close()


def test_a_producer_that_was_replaced_writes_nothing_more(
    writer: Agent, reader: Agent, make_topic: MakeTopic
) -> None:
    """The next start of an application ends what the one before left open."""
    topic = make_topic()
    before = writer.transactional("before", f"id-of-{topic}")
    before.begin()
    before.put(topic, b"left open")
    after = writer.transactional("after", f"id-of-{topic}")
    with pytest.raises(AgentError):
        before.put(topic, b"too late")
        before.commit()
    after.begin()
    after.put(topic, LAST)
    after.commit()
    after.close()
    assert values(reader, topic, 1) == [LAST]


def test_offsets_are_committed_with_the_records(
    writer: Agent, reader: Agent, groups: Groups, make_topic: MakeTopic
) -> None:
    """Consume, transform, produce: consumed offsets count where the output does."""
    topic, group = make_topic(), make_topic()
    producer = writer.transactional("one", f"id-of-{topic}")
    for offset, commit in ((5, True), (9, False), (7, True)):
        producer.begin()
        producer.put(topic, b"up to %d" % offset)
        producer.offsets(group, topic, 0, offset)
        before = groups.committed(group).get((topic, 0))
        (producer.commit if commit else producer.abort)()
        expected = offset if commit else before
        eventually(
            lambda expected=expected: groups.committed(group).get((topic, 0)) == expected,
            f"{expected} is committed",
        )
    producer.close()
    assert values(reader, topic, 2) == [b"up to 5", b"up to 7"]
