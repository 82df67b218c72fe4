"""A file that is slow holds up the requests that need it, and no others.

The preloaded disk holds operations on the files of the topic "slow" until it is released; meanwhile
another topic is produced to and fetched from, by clients that must not notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from tests.parity.cases._groups import commit, describe, heartbeat, stable
from tests.parity.requests import build
from tests.parity.talk import Connection, Talk
from tests.support.disk import Disk
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.system.conftest import MakeBroker
from tests.system.test_configs_at_once import fetch, produce
from tests.system.test_settings_at_run_time import talk_with

pytestmark = pytest.mark.timeout(120)

BATCH = build_batch([Record(b"v", key=b"k")])


@pytest.fixture
def make_broker(make_broker: MakeBroker) -> MakeBroker:
    """Of brokers that keep such a batch, which is of 1970."""

    def make(settings: Mapping[str, object] | None = None, **more: object) -> Broker:
        return make_broker({**KEEPS_WHAT_IS_OLD, **(settings or {})}, **more)

    return make


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """Of its operations it holds those that the test's name says."""
    operations = "write" if "write" in request.node.name else "read"
    files = "/__consumer_offsets-" if "group" in request.node.name else "/slow-"
    disk = Disk(tmp_path, files=files, operations=operations)
    yield disk
    disk.be("ok")


def produce_frame(topic: str, index: int = 0, batch: bytes = BATCH) -> object:
    data = [{"name": topic, "partition_data": [{"index": index, "records": batch}]}]
    return build(ApiKey.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data)


def error_of(connection: Connection) -> int:
    answer = connection.receive(record=False)
    return int(answer.responses[0].partition_responses[0].error_code.value)


def have_groups(talk: Talk) -> None:
    """Their topic is made, and its only partition loaded: a join before that is answered so."""
    talk.quietly(build(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0))
    talk.settled("__consumer_offsets")
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    talk.until(lambda: talk.quietly(describe(5, "g")).groups[0].error_code.value != loading)


def assert_unhurt(talk: Talk, topic: str, times: int = 20) -> None:
    first = produce(talk, topic, BATCH).base_offset
    assert first >= 0
    for number in range(1, times):
        assert produce(talk, topic, BATCH).base_offset == first + number
        assert len(parse_batches(fetch(talk, topic, first))) == number + 1


def test_a_write_that_does_not_end(make_broker: MakeBroker, disk: Disk) -> None:
    broker = make_broker(env=disk.environment()).start()
    talk = talk_with(broker)
    slow, quick = talk.topic("slow"), talk.topic("quick")
    assert produce(talk, slow, BATCH).base_offset == 0
    disk.be("hold")
    waiting = talk.connect()
    waiting.send(produce_frame(slow))
    disk.wait_held(1)
    assert_unhurt(talk, quick)
    assert len(parse_batches(fetch(talk, slow, 0))) == 1  # what is written can be read
    disk.be("ok")
    assert error_of(waiting) == 0
    talk.close()


def test_more_writers_there_than_handlers(make_broker: MakeBroker, disk: Disk) -> None:
    broker = make_broker({"num.io.threads": 3}, env=disk.environment()).start()
    talk = talk_with(broker)
    slow, quick = talk.topic("slow"), talk.topic("quick")
    disk.be("hold")
    waiting = [talk.connect() for _ in range(12)]
    waiting[0].send(produce_frame(slow))
    disk.wait_held(1)
    for connection in waiting[1:]:
        connection.send(produce_frame(slow))
        assert_unhurt(talk, quick, 3)
    disk.be("ok")
    assert [error_of(connection) for connection in waiting] == [0] * 12
    assert len(parse_batches(fetch(talk, slow, 0))) == 12
    talk.close()


def test_a_write_to_a_slow_file_does_not_wait_for_a_hanging_one(
    make_broker: MakeBroker, disk: Disk
) -> None:
    """All handlers that may serve slow files stand at one; another file only was slow of late."""
    broker = make_broker({"num.io.threads": 3}, env=disk.environment()).start()
    talk = talk_with(broker)
    hanging, late = talk.topic("slow-hangs"), talk.topic("slow-late")
    waiting = [talk.connect(), talk.connect()]
    disk.be("slow 300")  # for eight times as long it is expected to be so again
    assert produce(talk, late, BATCH).base_offset == 0
    disk.be(f"hold {hanging}")
    waiting[0].send(produce_frame(hanging))
    disk.wait_held(1)
    waiting[1].send(produce_frame(hanging))
    assert produce(talk, late, BATCH).base_offset == 1
    assert produce(talk, late, BATCH).base_offset == 2
    disk.be("ok")
    assert [error_of(connection) for connection in waiting] == [0, 0]
    talk.close()


def test_sizes_are_answered_during_a_write_that_does_not_end(
    make_broker: MakeBroker, disk: Disk
) -> None:
    broker = make_broker({"num.io.threads": 3}, env=disk.environment()).start()
    talk = talk_with(broker)
    slow, quick = talk.topic("slow"), talk.topic("quick")
    assert produce(talk, slow, BATCH).base_offset == 0
    disk.be("hold")
    waiting = talk.connect()
    waiting.send(produce_frame(slow))
    disk.wait_held(1)
    for _ in range(3):
        (directory,) = talk.quietly(build(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)).results
        sizes = {t.name: t.partitions[0].partition_size for t in directory.topics}
        assert (sizes[slow], sizes[quick]) == (len(BATCH), 0)
    disk.be("ok")
    assert error_of(waiting) == 0
    talk.close()


def test_groups_whose_write_does_not_end(make_broker: MakeBroker, disk: Disk) -> None:
    """More members that commit offsets and send heartbeats than there are handlers."""
    broker = make_broker(
        {"num.io.threads": 3, "offsets.topic.num.partitions": 1}, env=disk.environment()
    ).start()
    talk = talk_with(broker)
    quick = talk.topic("quick")
    have_groups(talk)
    member = stable(talk)
    asked = commit(
        talk, 8, member.group, (quick, {0: 5}), generation=member.generation, member=member.id
    )
    beat = heartbeat(4, member.group, member.generation, member.id)
    assert talk.quietly(asked).topics[0].partitions[0].error_code.value == 0
    disk.be("hold")
    committing = [talk.connect() for _ in range(6)]
    beating = [talk.connect() for _ in range(6)]
    committing[0].send(asked)
    disk.wait_held(1)
    for one, other in zip(committing[1:], beating, strict=False):
        one.send(asked)
        other.send(beat)
        assert_unhurt(talk, quick, 3)
    disk.be("ok")
    for connection in committing:
        answer = connection.receive(record=False)
        assert answer.topics[0].partitions[0].error_code.value == 0
    for connection in beating[:5]:
        assert connection.receive(record=False).error_code.value == 0
    talk.close()


def test_sessions_of_a_group_whose_write_does_not_end(make_broker: MakeBroker, disk: Disk) -> None:
    """The timer asks for a member's last request, and does not hang there: long polls end."""
    settings = {"offsets.topic.num.partitions": 1, "group.min.session.timeout.ms": 100}
    broker = make_broker(settings, env=disk.environment()).start()
    talk = talk_with(broker)
    quick = talk.topic("quick")
    have_groups(talk)
    member = stable(talk)
    asked = commit(
        talk, 8, member.group, (quick, {0: 5}), generation=member.generation, member=member.id
    )
    assert talk.quietly(asked).topics[0].partitions[0].error_code.value == 0
    stable(talk, "short", session=1000)
    committing, poller = talk.connect(), talk.connect()
    disk.be("hold")
    committing.send(asked)
    disk.wait_held(1)
    poller.send(fetch_frame([quick], wait_ms=1500))  # by then the short session's time is up
    assert records_in(poller) == [0]
    disk.be("ok")
    answer = committing.receive(record=False)
    assert answer.topics[0].partitions[0].error_code.value == 0
    talk.close()


def test_a_request_that_came_with_the_write_is_not_pushed(
    make_broker: MakeBroker, disk: Disk
) -> None:
    """It waits in the queue after the run; only its network thread can see that none comes."""
    broker = make_broker(env=disk.environment()).start()
    talk = talk_with(broker)
    slow = talk.topic("slow")
    writer, other = talk.connect(), talk.connect()
    disk.be("hold")
    writer.send(produce_frame(slow))
    other.send(build(ApiKey.LIST_GROUPS, 0))
    assert other.receive(record=False) is not None
    disk.wait_held(1)
    disk.be("ok")
    assert error_of(writer) == 0
    talk.close()


def fetch_frame(topics: list[str], *, offset: int = 0, wait_ms: int = 0) -> object:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset}
    partition["partition_max_bytes"] = 1 << 20
    asked = [{"topic": topic, "partitions": [partition]} for topic in topics]
    return build(
        ApiKey.FETCH, 12, replica_id=-1, max_wait=wait_ms, min_bytes=1, max_bytes=1 << 24,
        session_epoch=-1, topics=asked,
    )  # fmt: skip


def records_in(connection: Connection) -> list[int]:
    """How many batches of each topic are in the next answer."""
    answer = connection.receive(record=False)
    return [len(parse_batches(t.partitions[0].records or b"")) for t in answer.responses]


def test_long_polls_over_a_write_that_does_not_end(make_broker: MakeBroker, disk: Disk) -> None:
    """They look at the partition, are taken off its list, and wait no longer than they asked."""
    broker = make_broker(env=disk.environment()).start()
    talk = talk_with(broker)
    slow, quick, third = talk.topic("slow"), talk.topic("quick"), talk.topic("third")
    poller, expiring, writer = talk.connect(), talk.connect(), talk.connect()
    for connection in (poller, expiring, writer):  # accepted, all of them
        connection.send(fetch_frame([third]))
        assert records_in(connection) == [0]
    disk.be("hold")
    poller.send(fetch_frame([slow, quick], wait_ms=60_000))
    assert_unhurt(talk, third, 3)  # so the poll is not in one run with the write
    writer.send(produce_frame(slow))
    disk.wait_held(1)
    expiring.send(fetch_frame([slow], wait_ms=20))
    assert records_in(expiring) == [0]
    assert_unhurt(talk, quick, 3)
    of_slow, of_quick = records_in(poller)
    assert of_slow == 0 and 1 <= of_quick <= 3  # those that were there when it was served
    disk.be("ok")
    assert error_of(writer) == 0
    talk.close()


LARGE = build_batch([Record(b"x" * 40_000)])


@pytest.mark.parametrize(
    ("batch", "offset"), [(LARGE, 0), (LARGE, 7), (BATCH, 0)], ids=["sendfile", "scan", "small"]
)
def test_a_read_that_does_not_end(
    make_broker: MakeBroker, disk: Disk, batch: bytes, offset: int
) -> None:
    """Older than the recent tail, and on the disk alone: more readers than there are handlers."""
    broker = make_broker(
        {"num.network.threads": 1, "num.io.threads": 3}, env=disk.environment()
    ).start()
    talk = talk_with(broker)
    slow, quick = talk.topic("slow"), talk.topic("quick")
    for _ in range(20):
        assert produce(talk, slow, batch).error_code.value == 0
    talk.close()
    assert broker.stop() == 0
    broker.start()  # which knows of no recent batches
    talk = talk_with(broker)
    readers = [talk.connect() for _ in range(8)]
    disk.be("hold")
    for reader in readers:
        reader.send(fetch_frame([slow], offset=offset))
        assert_unhurt(talk, quick, 3)
    disk.wait_held(1)
    disk.be("ok")
    for reader in readers:
        assert records_in(reader) == [20 - offset]
    talk.close()


def test_a_reader_that_goes_away_while_its_range_is_read(
    make_broker: MakeBroker, disk: Disk
) -> None:
    broker = make_broker(env=disk.environment()).start()
    talk = talk_with(broker)
    slow, quick = talk.topic("slow"), talk.topic("quick")
    for _ in range(20):
        assert produce(talk, slow, LARGE).error_code.value == 0
    talk.close()
    assert broker.stop() == 0
    broker.start()
    talk = talk_with(broker)
    gone = talk.connect()
    disk.be("hold")
    gone.send(fetch_frame([slow]))
    disk.wait_held(1)
    gone.close()
    assert_unhurt(talk, quick)
    disk.be("ok")
    assert len(parse_batches(fetch(talk, slow, 0))) == 20
    talk.close()
