"""Older records that a Processor copies into its answers: the same bytes, and a bound of memory."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest

from kbroker.limits import COPIED_SLICE_BYTES_MAX
from kbroker.log.opening.loader import Checkpointed
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, eventually

BATCHES = 300  # the newest 256 are found in memory, and are sent from their file
BLOCKS = 16  # of a Processor
SIZES = (100, 4_096, 4_097, 16_384, COPIED_SLICE_BYTES_MAX, COPIED_SLICE_BYTES_MAX + 1)


def filled(rig: Rig, name: str = "t", partitions: int = 1, size: int = 1_500) -> Topic:
    topic = rig.create(name, partitions=partitions)
    dice = random.Random(3)
    for log in topic.logs:
        for _ in range(BATCHES):
            log.append(build_batch([dice.randbytes(dice.randint(size // 2, size))]))
    return topic


def unsent(rig: Rig) -> int:
    return rig.server.statistics()["unsent_bytes"]


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_the_bytes_are_those_of_the_log(rig: Rig, version: int) -> None:
    topic = filled(rig, partitions=3)
    client = rig.client()
    for max_bytes in SIZES:
        for _ in range(3):  # a handler serves it while one is awake
            asks = [Ask(topic, index, max_bytes=max_bytes) for index in range(3)]
            answer = fetch(client, version, asks, max_bytes=1 << 20)
            for (_, index), part in answer.partitions.items():
                expected = topic.logs[index].read(0, max_bytes, whole_first=index == 0)
                assert part.records == expected


def test_a_reader_in_order_sees_each_batch_once(rig: Rig) -> None:
    topic = filled(rig)
    client = rig.client()
    offsets: list[int] = []
    while len(offsets) < BATCHES:
        at = len(offsets)
        records = fetch(client, 12, [Ask(topic, offset=at, max_bytes=16_384)]).only.records or b""
        offsets += [batch.base_offset for batch in parse_batches(records)]
    assert offsets == list(range(BATCHES))


def test_nothing_is_given_where_no_batch_fits(rig: Rig) -> None:
    """Of the partitions after the first one."""
    topic = filled(rig, partitions=2)
    client = rig.client()
    for _ in range(3):
        answer = fetch(client, 12, [Ask(topic, 0), Ask(topic, 1, max_bytes=100)])
        assert answer.partitions[topic.name, 1].records == b""
        assert answer.partitions[topic.name, 1].error == 0


def deaf_reader(rig: Rig, topic: Topic) -> Client:
    """It has asked for as much as the blocks of a Processor hold, and reads nothing."""
    deaf = rig.client(receive_bytes=4096)
    asks = [Ask(topic, index, max_bytes=16_384) for index in range(BLOCKS)]
    deaf.send(fetch_frame(12, asks, max_bytes=1 << 20))
    eventually(deaf.has_bytes, "it is answered")
    return deaf


def test_a_client_that_does_not_read_leaves_others_their_files(rig: Rig) -> None:
    topic = filled(rig, partitions=BLOCKS)
    deaf: list[Client] = []

    def has_them() -> bool:
        deaf.append(deaf_reader(rig, topic))
        return unsent(rig) >= (BLOCKS - 1) * COPIED_SLICE_BYTES_MAX

    eventually(has_them, "its answer is of copies")
    held = unsent(rig)
    client = rig.client()
    for _ in range(3):
        answer = fetch(client, 12, [Ask(topic, max_bytes=16_384)])
        assert answer.only.records == topic.logs[0].read(0, 16_384)
    assert unsent(rig) <= held, "memory is bounded"
    for one in deaf:
        parts = fetched_in(12, one.receive()).partitions.values()
        assert sum(len(part.records or b"") for part in parts) == BLOCKS * 16_384
    eventually(lambda: unsent(rig) == 0, "all of it has left")


def test_blocks_come_back_from_a_connection_that_ends(rig: Rig) -> None:
    topic = filled(rig, partitions=BLOCKS)
    for _ in range(3):
        deaf_reader(rig, topic).reset()
        eventually(lambda: unsent(rig) == 0, "it is freed")
    client = rig.client()
    for _ in range(3):
        answer = fetch(client, 12, [Ask(topic, max_bytes=16_384)])
        assert answer.only.records == topic.logs[0].read(0, 16_384)


def test_a_copy_ends_where_the_log_is_damaged(make_rig: Callable[..., Rig]) -> None:
    """Of records that an earlier process has written."""
    rig = make_rig()
    topic_id = uuid.uuid4()
    log = open_led_log(rig.directory / "t-0", "t", 0, topic_id, {})
    log.set_leadership(NODE_ID, True, 0, 1)
    for _ in range(BATCHES):
        log.append(build_batch([b"x" * 1_000]))
    whole = log.read(0, 16_384)
    log.close()
    size = parse_batches(whole)[0].size_bytes
    with (rig.directory / "t-0" / f"{0:020}.log").open("r+b") as file:
        file.seek(4 * size + 8)
        file.write(b"\xff" * 4)  # the length of the fifth batch
    clean = Checkpointed(True, BATCHES, BATCHES, 0)
    log = open_led_log(rig.directory / "t-0", "t", 0, topic_id, {}, clean)
    log.set_leadership(NODE_ID, True, 1, 1)
    topic = rig.topics["t"] = Topic("t", topic_id, [log])
    rig.table.publish([("t", topic_id.bytes, False, [log])], [])
    client = rig.client()
    for _ in range(5):
        records = fetch(client, 12, [Ask(topic, max_bytes=16_384)]).only.records
        assert records == whole[: 4 * size]
