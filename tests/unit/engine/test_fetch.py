"""Fetch through the real hot path, in every version, with kio as the client."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from kbroker import limits
from kbroker.errors import ErrorCode
from kbroker.protocol.wire import encode_unsigned_varint
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch, parse_batches
from tests.system.process_facts import written_bytes
from tests.unit.engine.wire import (
    FETCH_BY_ID,
    FETCH_VERSIONS,
    Ask,
    answer_in,
    fetch,
    fetch_frame,
    fetched_in,
    key_of,
)
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, eventually, framed

NOWHERE = Topic("nowhere", uuid.UUID(int=5), [])
every_version = pytest.mark.parametrize("version", FETCH_VERSIONS)


def fill(topic: Topic, index: int = 0, count: int = 5, size: int = 100) -> list[bytes]:
    """Batches of one record; what a fetch from offset 0 gives back, batch by batch."""
    for i in range(count):
        result = topic.logs[index].append(build_batch([b"%03d" % i + b"x" * (size - 3)]))
        assert result.error == 0
    data = topic.logs[index].read(0, 1 << 30)
    batches, at = [], 0
    for parsed in parse_batches(data, records=False):
        batches.append(data[at : at + parsed.size_bytes])
        at += parsed.size_bytes
    return batches


@every_version
def test_records_come_back_as_they_are_in_the_log(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    batches = fill(topic, 1)
    answer = fetch(rig.client(), version, [Ask(topic, 1)], correlation_id=42)
    assert (answer.correlation_id, answer.error, answer.session_id) == (42, 0, 0)
    assert list(answer.partitions) == [key_of(topic, 1, by_id=version >= FETCH_BY_ID)]
    assert answer.only.records == b"".join(batches)
    assert (answer.only.error, answer.only.high_watermark) == (0, 5)
    assert answer.only.last_stable_offset == 5
    assert answer.only.log_start_offset == (0 if version >= 5 else -1)
    assert answer.only.aborted is None


@every_version
def test_a_reader_of_committed_records_gets_a_list_of_aborted_ones(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    batches = fill(topic)
    answer = fetch(rig.client(), version, [Ask(topic, 0, 2)], read_committed=True)
    assert answer.only.aborted == ()
    assert answer.only.records == b"".join(batches[2:])


@every_version
def test_unknown_topics_and_partitions_and_offsets(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=1)
    fill(topic)
    by_id = version >= FETCH_BY_ID
    asks = [Ask(NOWHERE, 0), Ask(topic, 0, 6), Ask(topic, 1), Ask(topic, -1)]
    answer = fetch(rig.client(), version, asks, max_wait_ms=60_000)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {name: f.error for name, f in answer.partitions.items()} == {
        key_of(NOWHERE, 0, by_id=by_id): missing,
        key_of(topic, 0, by_id=by_id): ErrorCode.OFFSET_OUT_OF_RANGE,
        key_of(topic, 1, by_id=by_id): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        key_of(topic, -1, by_id=by_id): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for fetched in answer.partitions.values():
        assert fetched.high_watermark == -1
        assert fetched.records == b"", "empty, not null: some clients fail on null"


@every_version
def test_at_the_end_there_is_nothing_and_no_error(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    fill(topic)
    answer = fetch(rig.client(), version, [Ask(topic, 0, 5)])
    assert (answer.only.error, answer.only.records) == (0, b"")


@every_version
def test_partitions_come_in_the_order_of_the_request(rig: Rig, version: int) -> None:
    topics = [rig.create(name, partitions=3) for name in ("z", "a")]
    for topic in topics:
        for index in range(3):
            fill(topic, index, count=1)
    asks = [Ask(topic, index) for topic in topics for index in (2, 0, 1)]
    answer = fetch(rig.client(), version, asks)
    by_id = version >= FETCH_BY_ID
    assert list(answer.partitions) == [key_of(a.topic, a.index, by_id=by_id) for a in asks]


@every_version
def test_a_frame_cut_anywhere_closes(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    asks = [Ask(topic, 0), Ask(topic, 1)]
    options = {} if version < 7 else {"forgotten": [(topic, 0)]}
    payload = fetch_frame(version, asks, **options)[4:]  # type: ignore[arg-type]
    for length in range(8, len(payload)):
        client = rig.client()
        client.send(framed(payload[:length]))
        assert client.ended(), f"cut at {length} of {len(payload)}"
        client.close()


@pytest.mark.parametrize("count", [limits.TAGGED_FIELDS_MAX, limits.TAGGED_FIELDS_MAX + 1])
def test_more_tagged_fields_than_are_read_close(rig: Rig, count: int) -> None:
    frame = fetch_frame(13, [Ask(rig.create("t"), 0, 0)])
    tags = encode_unsigned_varint(count) + b"\x7f\x00" * count
    client = rig.client()
    client.send(framed(frame[4:-1] + tags))
    if count <= limits.TAGGED_FIELDS_MAX:
        assert fetched_in(13, client.receive()).only.error == 0
    else:
        assert client.ended()


def ended_or_answered(rig: Rig, client: Client) -> bool:
    rig.expire_all()
    return client.has_bytes()


@every_version
def test_counts_that_lie_close_or_fail(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    payload = fetch_frame(version, [Ask(topic)])[4:]
    for at in range(8, len(payload) - 3):
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
            client = rig.client()
            client.send(framed(payload[:at] + lie + payload[at + 4 :]))
            # A long poll may have come of it: its deadline has come as soon as it is parked.
            eventually(partial(ended_or_answered, rig, client), f"{lie!r} at {at}")
            client.close()
    assert fetch(rig.client(), version, [Ask(topic)]).only.error == 0


@pytest.mark.parametrize("version", [v for v in FETCH_VERSIONS if v >= 9])
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (-1, 0),
        (3, 0),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_the_leader_epoch_is_checked(rig: Rig, version: int, asked: int, error: int) -> None:
    topic = rig.create("t")
    topic.logs[0].set_leadership(1, True, 3, 1)
    fill(topic)
    answer = fetch(rig.client(), version, [Ask(topic, leader_epoch=asked)], max_wait_ms=60_000)
    assert answer.only.error == error
    assert bool(answer.only.records) == (error == 0)


def test_a_partition_led_elsewhere(rig: Rig) -> None:
    topic = rig.create("t")
    fill(topic)
    topic.logs[0].set_leadership(2, False, 1, 1)
    answer = fetch(rig.client(), 10, [Ask(topic)], max_wait_ms=60_000)
    assert answer.only.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- How much ------------------------------------------------------------------------------------


def test_the_first_batch_is_whole_whatever_the_bounds(rig: Rig) -> None:
    topic = rig.create("t")
    batches = fill(topic)
    for bounds in ({"max_bytes": 1}, {"max_bytes": 0}):
        assert fetch(rig.client(), 12, [Ask(topic)], **bounds).only.records == batches[0]
    answer = fetch(rig.client(), 12, [Ask(topic, max_bytes=1)])
    assert answer.only.records == batches[0]


def test_bytes_may_end_within_a_batch_but_not_within_the_first(rig: Rig) -> None:
    topic = rig.create("t")
    batches = fill(topic)
    size = len(batches[0])
    answer = fetch(rig.client(), 12, [Ask(topic, max_bytes=size + 10)])
    assert answer.only.records == (batches[0] + batches[1])[: size + 10]


def test_the_bounds_hold_over_all_partitions(rig: Rig) -> None:
    topic = rig.create("t", partitions=3)
    batches = [fill(topic, index) for index in range(3)]
    size = len(batches[0][0])
    answer = fetch(rig.client(), 12, [Ask(topic, i) for i in range(3)], max_bytes=size * 6)
    records = [f.records for f in answer.partitions.values()]
    # The first is whole; of the second one batch fits; a cut first batch is left out.
    assert records == [b"".join(batches[0]), batches[1][0], b""]


def test_the_brokers_own_bound_holds(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(hot={"fetch_bytes_max": 1000})
    topic = rig.create("t")
    batches = fill(topic, count=50)
    answer = fetch(rig.client(), 12, [Ask(topic)], max_bytes=1 << 30)
    assert answer.only.records == b"".join(batches)[:1000]


@pytest.mark.parametrize("inline", [0, 1 << 30])
def test_ranges_by_sendfile_and_ranges_in_memory_are_the_same_bytes(
    make_rig: Callable[..., Rig], inline: int
) -> None:
    rig = make_rig(hot={"inline_range_bytes": inline})
    topics = [rig.create(name, partitions=3) for name in ("a", "b")]
    wanted = {}
    for topic in topics:
        for index in (0, 2):
            wanted[topic.name, index] = b"".join(fill(topic, index, count=20, size=3000))
        wanted[topic.name, 1] = b""
    asks = [Ask(topic, index) for topic in topics for index in range(3)]
    client = rig.client()
    before = written_bytes(os.getpid())
    answer = fetch(client, 11, asks)
    assert {name: f.records for name, f in answer.partitions.items()} == wanted
    # sendfile counts as written, by file and socket alike; sendmsg does not.
    by_sendfile = written_bytes(os.getpid()) - before
    assert (by_sendfile >= sum(map(len, wanted.values()))) is (inline == 0)


def test_short_ranges_leave_with_those_after_them(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(send_buffer_bytes=8192)
    topic = rig.create("t", partitions=12)  # together more than is copied for one call
    wanted = [b"".join(fill(topic, index, count=10, size=2000)) for index in range(12)]
    quick, slow = rig.client(), rig.client(receive_bytes=8192)
    before = written_bytes(os.getpid())
    for client in (quick, slow, slow):
        answer = fetch(client, 13, [Ask(topic, index) for index in range(12)])
        assert [part.records for part in answer.partitions.values()] == wanted
    assert written_bytes(os.getpid()) - before < len(b"".join(wanted)), "by sendfile"


def test_a_large_answer_is_sent_in_parts_and_resumed(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(send_buffer_bytes=8192)
    topic = rig.create("t", partitions=4)
    wanted = [b"".join(fill(topic, index, count=20, size=100_000)) for index in range(4)]
    asks = [Ask(topic, index, max_bytes=50 << 20) for index in range(4)]
    slow, neighbour = rig.client(receive_bytes=8192), rig.client()
    slow.send(fetch_frame(12, asks, correlation_id=5))
    head = slow.read(4 + 100_000)
    # It waits in the middle of a range; others are served meanwhile.
    other = fetch(neighbour, 12, asks[:1])
    assert other.only.records == wanted[0]
    rest = slow.read(int.from_bytes(head[:4], "big") - 100_000)
    answer = fetched_in(12, head[4:] + rest)
    assert answer.correlation_id == 5
    assert [f.records for f in answer.partitions.values()] == wanted


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_ranges_are_sent_where_the_file_system_has_no_sendfile(
    make_rig: Callable[..., Rig], error: int
) -> None:
    rig = make_rig(send_buffer_bytes=8192)
    topic = rig.create("t", partitions=2)
    wanted = [b"".join(fill(topic, index, count=20, size=100_000)) for index in range(2)]
    asks = [Ask(topic, index, max_bytes=50 << 20) for index in range(2)]
    with FileFaults(Fault(("send",), "t-", times=FOREVER, error=error)) as faults:
        for client in (rig.client(), rig.client(receive_bytes=8192)):
            answer = fetch(client, 12, asks)
            assert [part.records for part in answer.partitions.values()] == wanted
    assert any(seen.operation == "send" for seen in faults.seen)


def test_a_file_that_cannot_be_read_ends_the_connection(make_rig: Callable[..., Rig]) -> None:
    """The size of the answer has been sent, and nothing else could be said."""
    rig = make_rig()
    topic = rig.create("t")
    fill(topic, count=20, size=100_000)
    client, other = rig.client(), rig.client()
    with FileFaults(Fault(("send",), "t-", error=errno.EIO)):
        client.send(fetch_frame(12, [Ask(topic)]))
        with pytest.raises(AssertionError, match="ended"):
            client.receive()
        assert fetch(other, 12, [Ask(topic)]).only.records


def test_a_promised_range_is_sent_though_the_topic_is_deleted(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(send_buffer_bytes=8192)
    topic = rig.create("t")
    wanted = b"".join(fill(topic, count=20, size=400_000))
    slow = rig.client(receive_bytes=8192)
    slow.send(fetch_frame(12, [Ask(topic, max_bytes=50 << 20)]))
    head = slow.read(4 + 100_000)
    rig.delete("t")
    rest = slow.read(int.from_bytes(head[:4], "big") - 100_000)
    assert fetched_in(12, head[4:] + rest).only.records == wanted


def test_thousands_of_topics_in_one_fetch(rig: Rig) -> None:
    # What one request may reserve grows with its size, not with the square of it.
    import resource

    topic = rig.create("t")
    fill(topic)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    others = [Topic(f"topic-{i}", uuid.uuid4(), []) for i in range(20_000)]
    payload = fetch_frame(4, [*(Ask(other) for other in others), Ask(topic)])
    client = rig.client()
    client.send(payload)
    answer = fetched_in(4, client.receive())
    assert len(answer.partitions) == 20_001
    assert answer.partitions["t", 0].error == 0
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert grown_mb < 400, f"{grown_mb:.0f} MB for a request of {len(payload)} bytes"


@pytest.mark.parametrize("version", FETCH_VERSIONS[8:])
def test_an_epoch_that_went_further_elsewhere(rig: Rig, version: int) -> None:
    """A client that read 3 records in epoch 1, of which this log has 2, is answered so at once."""
    topic = rig.create("t")
    log = topic.logs[0]
    fill(topic, count=1)
    log.set_leadership(NODE_ID, True, 1, 1)
    fill(topic, count=2)
    log.set_leadership(NODE_ID, True, 4, 1)
    fill(topic, count=2)
    client = rig.client()

    def diverging(fetched_epoch: int, offset: int) -> tuple[int, int, int, int]:
        ask = Ask(topic, offset=offset, fetched_epoch=fetched_epoch)
        client.send(fetch_frame(version, [ask], max_wait_ms=60_000))
        _, answer = answer_in(ApiKey.FETCH, version, client.receive())
        found = answer.responses[0].partitions[0]
        end = found.diverging_epoch
        return found.error_code.value, end.epoch, end.end_offset, len(found.records or b"")

    assert diverging(1, 4) == (0, 1, 3, 0)
    assert diverging(3, 2) == (0, 1, 3, 0)
    assert diverging(5, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, 0)
    agreed = diverging(1, 3)
    assert agreed[:3] == (0, -1, -1) and agreed[3] > 0
