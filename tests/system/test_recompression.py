"""Batches that unpack to much: their cost where they are only checked, and where they are
recompressed for the topic (`compression.type`). The same bounds hold, with the same errors.
"""

from __future__ import annotations

import random
import socket
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.support.record_batches import Record, build_batch, build_record
from tests.system import process_facts
from tests.system.conftest import MakeBroker
from tests.system.test_hostile import answer, assert_well, connect, eventually, framed

pytestmark = pytest.mark.client

PRODUCE, METADATA = 0, 3
PARTITIONS = 8
OK, MESSAGE_TOO_LARGE = 0, 10
GROWTH_BYTES_MAX = 200 << 20  # four requests of 5 MB once took 4.2 GB
MEGABYTE = 1 << 20
ANSWER_S = 280.0  # for all of 3.2 GB, on a machine that may be busy


@cache
def bomb(noise_bytes: int, zeros_bytes: int) -> bytes:
    """A batch of one record: some bytes that do not pack, then zeros."""
    value = random.Random(1).randbytes(noise_bytes) + bytes(zeros_bytes)
    packer = zlib.compressobj(1 if noise_bytes else 9, zlib.DEFLATED, 31)
    payload = packer.compress(build_record(Record(value), 0, 1_000)) + packer.flush()
    return build_batch([Record()], codec="gzip", payload=payload)


def with_topic(broker: Broker, connection: socket.socket) -> None:
    asked = struct.pack(">ih1sb", 1, 1, b"t", 1)  # one name, and it may be created

    def is_there() -> bool:
        connection.sendall(framed(METADATA, 4, 1, asked))
        return struct.pack(">ihii", PARTITIONS, 0, 0, 1)[:4] in answer(connection)[-400:]

    assert eventually(is_there)


def produce_pairs(
    connection: socket.socket, pairs: list[tuple[int, bytes]]
) -> list[tuple[int, int, int]]:
    """(partition, error code, base offset) as answered."""
    body = struct.pack(">hhiih1si", -1, 1, 60_000, 1, 1, b"t", len(pairs))
    for index, batch in pairs:
        body += struct.pack(">ii", index, len(batch)) + batch
    connection.sendall(framed(PRODUCE, 7, 42, body))
    answered = answer(connection)
    *head, count = struct.unpack(">iih1si", answered[:15])
    assert head == [42, 1, 1, b"t"]
    return [struct.unpack_from(">ihq", answered, 15 + 30 * at) for at in range(count)]


def produce(connection: socket.socket, batches: list[bytes]) -> list[int]:
    """The error code of each partition."""
    answers = produce_pairs(connection, list(enumerate(batches)))
    assert [index for index, _, _ in answers] == list(range(len(batches)))
    return [error for _, error, _ in answers]


SETTINGS = {"num.partitions": PARTITIONS, "message.max.bytes": 2 * MEGABYTE}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stored", ["zstd", "snappy"])
def test_four_requests_of_eight_hundred_megabytes(make_broker: MakeBroker, stored: str) -> None:
    broker = make_broker({**SETTINGS, "compression.type": stored}).start()
    batches = [bomb(600_000, 100 * MEGABYTE)] * PARTITIONS
    with connect(broker) as first:
        with_topic(broker, first)
    before = process_facts.resident_bytes(broker.pid)

    def one(_number: int) -> list[int]:
        with connect(broker) as connection:
            connection.settimeout(ANSWER_S)
            return produce(connection, batches)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(one, range(4)))
    # In snappy, a codec of little effect, 100 MB of zeros take more than a batch may have.
    expected = MESSAGE_TOO_LARGE if stored == "snappy" else OK
    assert answers == [[expected] * PARTITIONS] * 4
    assert process_facts.peak_bytes(broker.pid) < before + GROWTH_BYTES_MAX


@pytest.mark.parametrize("stored", ["producer", "zstd"])
def test_bounds_of_unpacked_batches_and_requests(make_broker: MakeBroker, stored: str) -> None:
    broker = make_broker({**SETTINGS, "compression.type": stored}).start()
    with connect(broker) as connection:
        with_topic(broker, connection)
        assert produce(connection, [bomb(0, 60 * MEGABYTE)])[0] in (OK, MESSAGE_TOO_LARGE)
        assert produce(connection, [bomb(0, 65 * MEGABYTE)]) == [MESSAGE_TOO_LARGE]
        # A request of 122 KB: 64 MB in all.
        assert produce(connection, [bomb(0, 60 * MEGABYTE)] * 2)[1] == MESSAGE_TOO_LARGE
        assert produce(connection, [build_batch([b"x" * 100], codec="gzip")] * 2) == [OK, OK]
    assert_well(broker)


@pytest.mark.parametrize("stored", ["producer", "lz4"])
def test_without_the_libraries_the_bounds_are_the_same(
    make_broker: MakeBroker, stored: str
) -> None:
    settings = {**SETTINGS, "compression.type": stored}
    broker = make_broker(settings, env={"KBROKER_WITHOUT_CODECS": "1"}).start()
    with connect(broker) as connection:
        with_topic(broker, connection)
        before = process_facts.resident_bytes(broker.pid)
        assert produce(connection, [bomb(0, 60 * MEGABYTE)]) == [OK]
        assert produce(connection, [bomb(0, 65 * MEGABYTE)]) == [MESSAGE_TOO_LARGE]
        assert produce(connection, [bomb(0, 60 * MEGABYTE)] * 2) == [OK, MESSAGE_TOO_LARGE]
        assert produce(connection, [build_batch([b"x" * 100], codec="gzip")] * 2) == [OK, OK]
    assert process_facts.peak_bytes(broker.pid) < before + (256 << 20) + GROWTH_BYTES_MAX
    assert_well(broker)


@pytest.mark.parametrize("libraries", ["with libraries", "without"])
def test_of_a_partition_twice_the_last_is_stored(make_broker: MakeBroker, libraries: str) -> None:
    env = {} if libraries == "with libraries" else {"KBROKER_WITHOUT_CODECS": "1"}
    broker = make_broker({**SETTINGS, "compression.type": "zstd"}, env=env).start()
    one, two, other = (
        build_batch(values, codec="gzip") for values in ([b"1"], [b"2"] * 2, [b"3"] * 3)
    )
    with connect(broker) as connection:
        with_topic(broker, connection)
        pairs = [(1, other), (0, one), (1, one), (0, other), (0, two)]
        assert produce_pairs(connection, pairs) == [(1, OK, 0), (0, OK, 0)]
        assert produce_pairs(connection, [(0, one), (1, two)]) == [(0, OK, 2), (1, OK, 1)]
    assert_well(broker)
