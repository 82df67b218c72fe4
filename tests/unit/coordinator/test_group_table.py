"""GroupTable: what is appended is what is known, and what a load of the same log finds."""

from __future__ import annotations

import random

import pytest

from kbroker.compression import Codec
from kbroker.coordinator.group._groups import CommittedOffset, GroupTable, offset_key, offset_value
from kbroker.coordinator.runtime._shard_table import ACTIVE, LOADING, NOT_OWNER, partition_for
from kbroker.core._live_objects import live_counts
from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol._crc32c import crc32c
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from tests.support.led_log import LedLog
from tests.support.record_batches import CODECS, build_batch, build_record, compress, seal, varint
from tests.support.record_batches import Record as SentRecord
from tests.support.same_hash import times_dearer
from tests.unit.coordinator.tables import Listener, committed, opened, reloaded

STABLE = 3


@pytest.mark.parametrize(
    ("group", "partition"), [("g", 3), ("", 0), ("kafka", 12), ("ü€", 26), ("\U0001f600", 43)]
)
def test_a_group_s_partition_is_the_one_that_kafka_uses(group: str, partition: int) -> None:
    # Worked out with Java: Utils.abs(group.hashCode()) % 50.
    units = group.encode("utf-16-be")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2])) & 0xFFFF_FFFF
    hashed = abs(hashed - 2**32 if hashed >= 2**31 else hashed)
    assert partition_for(group, 50) == hashed % 50
    if group in ("g", "", "ü€"):
        assert partition_for(group, 50) == partition


def test_a_group_whose_hash_has_no_absolute_value_is_in_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0  # hashes to the smallest number


def test_committed_offsets_are_known_and_are_in_the_log(table: GroupTable, log: LedLog) -> None:
    wanted = [committed(0, 5), committed(3, 7, "text"), committed(1, 9, topic="other")]
    assert table.commit("g", wanted) == 0
    assert table.offsets("g") == sorted(wanted)
    assert table.offset("g", "orders", 3) == wanted[1]
    assert table.offset("g", "orders", 4) is None
    assert table.offset("h", "orders", 3) is None
    (batch,) = decode_batches(log.read(0))
    assert [record.key for record in batch.records] == [
        offset_key("g", offset.topic, offset.partition) for offset in wanted
    ]
    assert [record.value for record in batch.records] == [offset_value(each) for each in wanted]


def test_records_have_the_bytes_of_apache_kafka() -> None:
    """Read from the log of a broker of 4.3.0."""
    topic_id = bytes.fromhex("3eebaec7b36a43bc887954d60482fbb5")
    assert offset_key("g", "t", 0).hex() == "0001000167000174" + "00000000"
    plain = CommittedOffset("t", 0, 5, -1, "m", 0x1A20046DD21, -1, topic_id)
    assert offset_value(plain).hex() == (
        "00040000000000000005ffffffff026d000001a20046dd210100103eebaec7b36a43bc887954d60482fbb5"
    )
    expiring = plain._replace(commit_ms=0x1A20046DD3B, expire_ms=0x1A2056D393B)
    assert offset_value(expiring).hex() == (
        "0001000000000000000500016d000001a20046dd3b000001a2056d393b"
    )


def test_removing_leaves_tombstones(table: GroupTable, log: LedLog) -> None:
    table.commit("g", [committed(partition, 5) for partition in range(4)])
    assert table.remove_offsets("g", [("orders", 1), ("orders", 9), ("nothing", 0)]) == 0
    assert [offset.partition for offset in table.offsets("g")] == [0, 2, 3]
    last = list(decode_batches(log.read(0)))[-1]
    assert [(record.key, record.value) for record in last.records] == [
        (offset_key("g", "orders", 1), None)
    ]
    assert reloaded(log).offsets("g") == table.offsets("g")


def test_a_partition_that_is_named_again_has_one_tombstone(table: GroupTable, log: LedLog) -> None:
    table.commit("g", [committed(0, 5), committed(1, 5)])
    end = log.log_end_offset
    assert table.remove_offsets("g", [("orders", 0), ("orders", 1)] * 10_000) == 0
    assert log.log_end_offset == end + 2


def test_only_old_offsets_are_removed_when_asked(table: GroupTable) -> None:
    table.commit("g", [committed(0, 5), committed(1, 5)._replace(commit_ms=1_001)])
    both = [("orders", 0), ("orders", 1)]
    assert table.remove_offsets("g", both, committed_until_ms=1_000) == 0
    assert [offset.partition for offset in table.offsets("g")] == [1]


def test_a_deleted_group_is_forgotten(table: GroupTable, log: LedLog) -> None:
    table.publish_members("g", state=0, generation=0, members=[])
    table.commit("g", [committed(0, 5)])
    assert table.delete_group("g", [(b"\0\2group", None)]) == 0
    assert table.offsets("g") == []
    assert table.statistics(0) == (0, 0, 0)
    assert reloaded(log).statistics(0) == (0, 0, 0)


def test_tombstones_fit_into_a_segment(table: GroupTable, log: LedLog) -> None:
    """A batch that does not is refused, when the group's own tombstone may be in the log."""
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        table.commit("g", [committed(partition, 5, topic=name) for partition in range(50)])
    log.configure(segment_bytes=10_000)
    begin = log.log_end_offset
    assert table.delete_group("g", [(b"\0\2group", None)]) == 0
    assert table.statistics(0) == (0, 0, 0)
    assert log.log_end_offset == begin + 1_001


def test_many_offsets_go_in_several_batches(table: GroupTable, log: LedLog) -> None:
    for topic in range(20):
        name = f"topic-{topic}"
        table.commit("g", [committed(partition, 5, topic=name) for partition in range(50)])
    log.configure(max_message_bytes=10_000)
    assert table.remove_offsets("g", [(f"topic-{n}", p) for n in range(10) for p in range(50)]) == 0
    assert {offset.topic for offset in table.offsets("g")} == {f"topic-{n}" for n in range(10, 20)}
    assert table.delete_group("g", [(b"\0\2group", None)]) == 0
    assert table.statistics(0) == (0, 0, 0)
    again = reloaded(log)
    assert again.statistics(0) == (0, 0, 0)
    last = list(decode_batches(log.read(0)))[-1].records[-1]
    assert (last.key, last.value) == (b"\0\2group", None)


def test_a_commit_that_would_be_gigabytes_is_refused(table: GroupTable) -> None:
    group = "g" * 32_000
    offsets = [committed(partition, 1) for partition in range(3_000)]
    assert table.commit(group, offsets) == ErrorCode.MESSAGE_TOO_LARGE
    assert table.offsets(group) == []


def test_states_of_a_shard(log: LedLog) -> None:
    table = GroupTable()
    assert table.state_of("g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    table.set_partition_count(1)
    assert (table.shard_state(0), table.state_of("g")) == (NOT_OWNER, ErrorCode.NOT_COORDINATOR)
    table.open(0, log)
    assert table.shard_state(0) == LOADING
    assert table.state_of("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    table.activate(0)
    assert (table.shard_state(0), table.state_of("g")) == (ACTIVE, ErrorCode.NONE)
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.NONE
    table.close(0)
    assert table.state_of("g") == ErrorCode.NOT_COORDINATOR
    assert table.offsets("g") == []
    with pytest.raises(ValueError, match="no partition 1"):
        table.open(1, log)


def test_a_log_that_refuses_changes_nothing(table: GroupTable, log: LedLog) -> None:
    log.set_leadership(2, False, 1, 1)
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.NOT_COORDINATOR
    log.set_leadership(1, True, 2, 1)
    log.configure(min_insync_replicas=2)
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.configure(max_message_bytes=100)
    assert table.commit("g", [committed(0, 1)]) == ErrorCode.MESSAGE_TOO_LARGE
    assert table.offsets("g") == []
    assert log.log_end_offset == 0


def test_members_keep_the_time_of_their_last_request(table: GroupTable) -> None:
    table.publish_members("g", state=STABLE, generation=1, members=[("a", None), ("b", "one")])
    assert table.last_heard_ms("g", "a") == 0
    assert table.last_heard_ms("g", "c") == 0
    assert table.last_heard_ms("h", "a") == 0
    table.publish_members("g", state=STABLE, generation=2, members=[("b", "one")])
    table.remove_members("g")
    assert table.statistics(0).groups == 0


def test_appends_wake_waiting_requests(log: LedLog) -> None:
    listener = Listener()
    table, woken = opened(log, listener), listener.woken
    table.commit("g", [committed(0, 1)])
    table.append(0, [(b"\0\2g", b"\0\3")])
    assert woken == [log, log]
    table.append(0, [])
    assert len(woken) == 2


def test_a_record_that_is_no_offset_is_given_to_python(table: GroupTable) -> None:
    batch = encode_batch(
        [
            Record(b"\0\2\0\1g", b"\0\3what a group is", timestamp_ms=5),
            Record(offset_key("g", "orders", 0), offset_value(committed(0, 5)), timestamp_ms=6),
            Record(offset_key("g", "orders", 0)[:-1], b"", timestamp_ms=7),
            Record(offset_key("g", "orders", 1), b"\0\4\0", timestamp_ms=7),
            Record(None, b"", timestamp_ms=7),
        ]
    )
    used, next_offset, others, left_out = table.load_batches(0, batch + batch[:70])
    assert (used, next_offset, left_out) == (len(batch), 5, [])
    assert [(record.offset, record.timestamp_ms) for record in others] == [
        (0, 5), (2, 7), (3, 7), (4, 7),
    ]  # fmt: skip
    assert others[0].key == b"\0\2\0\1g"
    assert others[0].value == b"\0\3what a group is"
    assert table.offsets("g") == [committed(0, 5)]


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_read(table: GroupTable, codec: Codec) -> None:
    records = [
        Record(offset_key("g", "orders", number), offset_value(committed(number, number)))
        for number in range(100)
    ]
    table.load_batches(0, encode_batch(records, codec=codec))
    assert len(table.offsets("g")) == 100


def commits(*offsets: int, base_offset: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch that commits each of these offsets for the partition of that number."""
    records = [Record(offset_key("g", "orders", n), offset_value(committed(n, n))) for n in offsets]
    return encode_batch(records, base_offset=base_offset, codec=codec)


def test_bytes_that_are_no_batch_are_refused(table: GroupTable) -> None:
    batch = commits(1, base_offset=0)
    with pytest.raises(KafkaError):
        table.load_batches(0, batch[:16] + b"\x01" + batch[17:])


def test_a_batch_that_cannot_be_read_costs_itself(table: GroupTable) -> None:
    damaged = commits(2, 3, base_offset=1)
    unpackable = bytearray(commits(4, base_offset=3, codec=Codec.GZIP))
    unpackable[-6] ^= 0x55  # in the checksum of the packed data
    data = commits(1, base_offset=0) + damaged[:90] + b"\x55" + damaged[91:]
    data += seal(bytes(unpackable)) + commits(5, base_offset=4)
    loaded = table.load_batches(0, data)
    assert (loaded.used_bytes, loaded.next_offset) == (len(data), 5)
    assert [offset for offset, _ in loaded.left_out] == [1, 3]
    assert table.offsets("g") == [committed(1, 1), committed(5, 5)]


# The bytes after the first one of a length. It has 32 bits, for Apache Kafka and for our validator:
# of a fifth byte the upper ones do not count.
LENGTH_TAILS = {"one byte": b"", "two bytes": b"\0", "five bytes": b"\x80\x80\x80\x70"}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", LENGTH_TAILS)
def test_a_length_is_the_one_that_the_validator_read(
    log: LedLog, table: GroupTable, form: str, codec: str
) -> None:
    key, value = offset_key("g", "orders", 7), offset_value(committed(7, 70))
    tail = LENGTH_TAILS[form]
    first = varint(len(key))[0] | (0x80 if tail else 0)
    body = b"\0\0\0" + bytes([first]) + tail + key + varint(len(value)) + value + b"\0"
    payload = compress(codec, varint(len(body)) + body)
    assert len(varint(len(key))) == 1
    log.append(build_batch([b""], codec=codec, payload=payload))
    data = log.read(0, to_log_end=True)
    loaded = table.load_batches(0, data)
    assert (loaded.used_bytes, loaded.left_out) == (len(data), [])
    assert table.offsets("g") == [committed(7, 70)]
    (decoded,) = decode_batches(data)
    assert (decoded.records[0].key, decoded.records[0].value) == (key, value)


def test_a_record_that_cannot_be_read_costs_itself(table: GroupTable) -> None:
    good = [offset_key("g", "orders", n) for n in range(4)]
    value = offset_value(committed(0, 9))
    records = [build_record(SentRecord(value, key, 0), n, 0) for n, key in enumerate(good)]
    at = records[1].index(good[1]) - 1
    records[1] = records[1][:at] + varint(63) + records[1][at + 1 :]  # a key beyond the record
    table.load_batches(0, build_batch(count=4, payload=b"".join(records)))
    assert [offset.partition for offset in table.offsets("g")] == [0, 2, 3]
    records[2] = varint(2**30) + records[2][1:]  # and where the next one begins is unknown
    batch = build_batch(count=4, base_offset=4, payload=b"".join(records))
    loaded = table.load_batches(0, batch)
    assert (loaded.used_bytes, loaded.next_offset) == (len(batch), 8)
    assert loaded.left_out == [(4, "3 of its 4 records are not well formed")]


def test_offsets_that_may_expire(table: GroupTable) -> None:
    table.commit("g", [committed(0, 5), committed(1, 5)._replace(commit_ms=2_000)])
    table.commit("h", [committed(0, 5, "text", expire_ms=500), committed(1, 5, expire_ms=5_000)])
    assert table.expirable(0, before_ms=999, now_ms=499) == []
    assert table.expirable(0, before_ms=1_000, now_ms=499) == [("g", [committed(0, 5)])]
    found = dict(table.expirable(0, before_ms=2_000, now_ms=500))
    assert [offset.partition for offset in found["g"]] == [0, 1]
    assert found["h"] == [committed(0, 5, "text", expire_ms=500)]


def test_offsets_of_a_transaction_for_a_topic_that_is_gone_come_too_late(
    table: GroupTable,
) -> None:
    """It counts with its marker, after the commit for the topic that has the name now."""
    now = committed(1, 5)
    before = committed(0, 4)._replace(topic_id=bytes(16))
    data = encode_batch(
        [Record(offset_key("g", "orders", 0), offset_value(before))],
        producer_id=7, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    data += encode_batch([Record(offset_key("g", "orders", 1), offset_value(now))], base_offset=1)
    data += marker(producer_id=7, base_offset=2)
    table.load_batches(0, data)
    assert table.offsets("g") == [now]


def marker(*, producer_id: int, base_offset: int) -> bytes:
    """The end of a transaction that counts: a batch with the bit of control records."""
    batch = bytearray(
        encode_batch(
            [Record(b"\0\0\0\1", bytes(6))],
            producer_id=producer_id, producer_epoch=0, base_offset=base_offset, transactional=True,
        )
    )  # fmt: skip
    batch[22] |= 0x20
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_offsets_of_a_topic(table: GroupTable) -> None:
    table.commit("g", [committed(0, 5), committed(1, 5), committed(0, 5, topic="other")])
    table.commit("h", [committed(7, 5)])
    found = {group: [each.partition for each in some] for group, some in table.of_topic("orders")}
    assert found == {"g": [0, 1], "h": [7]}
    assert table.of_topic("nothing") == []
    assert table.groups(0) == ["g", "h"]


def test_a_thousand_random_steps_leave_the_contents_of_a_dictionary(
    table: GroupTable, log: LedLog
) -> None:
    """Against a plain model, and then once more out of the log."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    model: dict[tuple[str, str, int], CommittedOffset] = {}
    for _ in range(1_000):
        group = f"group-{draw.randrange(30)}"
        topic = f"topic-{draw.randrange(5)}"
        partitions = draw.sample(range(40), draw.randrange(1, 6))
        kind = draw.random()
        if kind < 0.7:
            offsets = [
                committed(
                    partition, draw.randrange(2**62), "m" * draw.randrange(20) * draw.randrange(2),
                    topic=topic,
                )
                for partition in partitions
            ]  # fmt: skip
            assert table.commit(group, offsets) == 0
            model |= {(group, topic, each.partition): each for each in offsets}
        elif kind < 0.95:
            assert table.remove_offsets(group, [(topic, each) for each in partitions]) == 0
            for partition in partitions:
                model.pop((group, topic, partition), None)
        else:
            assert table.delete_group(group) == 0
            model = {key: each for key, each in model.items() if key[0] != group}
    for known in (table, reloaded(log)):
        for number in range(30):
            group = f"group-{number}"
            wanted = sorted(each for key, each in model.items() if key[0] == group)
            assert known.offsets(group) == wanted, f"seed {seed}"
        assert known.statistics(0).offsets == len(model), f"seed {seed}"
    for number in range(30):
        table.delete_group(f"group-{number}")
    assert table.statistics(0) == (0, 0, 0), f"seed {seed}"


def test_names_that_would_share_a_place_cost_as_much_as_others(table: GroupTable) -> None:
    def members(names: list[str]) -> None:
        rows = [(name, None) for name in names]
        for generation in range(4):
            table.publish_members("g", state=STABLE, generation=generation, members=rows)

    def topics(names: list[str]) -> None:
        for at in range(0, len(names), 512):
            table.commit("g", [committed(0, 5, topic=name) for name in names[at : at + 512]])

    assert times_dearer(members) < 4
    assert times_dearer(topics) < 4


def test_members_that_were_looked_at_are_not_counted_for_ever(table: GroupTable) -> None:
    members = [("a", None), ("b", "one")]
    table.publish_members("g", state=STABLE, generation=1, members=members)
    before = live_counts()["members"]
    in_c = table.published("g")
    assert in_c is not None and sorted(in_c.members) == members
    assert live_counts()["members"] == before
