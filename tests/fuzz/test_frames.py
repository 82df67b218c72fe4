"""The frame fuzzer's frames, and single ones sent alone.

A failure names its frame: `python -m tests.fuzz.frames --seed S --number N` sends it again.
KBROKER_FUZZ_SEED replays a run.
"""

from __future__ import annotations

import os
import socket
import struct
import uuid
from collections.abc import Iterator

import pytest

from kbroker.protocol.versions import SERVED
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from tests.fuzz import report
from tests.fuzz.answers import ISOLATION_LEVELS, isolation_level, may_fail
from tests.fuzz.corpus import TARGETS, VICTIM, Ids, templates
from tests.fuzz.mutate import BLOCK, LAST, Maker, framed
from tests.fuzz.schema import Tracer
from tests.fuzz.talk import MAY_WAIT
from tests.fuzz.target import OVERRIDES, Admin, prepare
from tests.support.servers import assert_nothing_unexpected

SEED = int(os.environ.get("KBROKER_FUZZ_SEED", "20261121"))
ALONE = 1_500
IDS = Ids({name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in (*TARGETS, VICTIM)})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(OVERRIDES) as broker:
        yield broker
        assert_nothing_unexpected(broker)


def address_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def test_a_frame_is_made_again_from_its_seed_and_number() -> None:
    first, again = Maker(SEED, IDS), Maker(SEED, IDS)
    block = first.block(3)
    for at in (0, 17, BLOCK - 1):
        assert again.frame(3 * BLOCK + at) == block[at]
    assert Maker(SEED + 1, IDS).block(3) != block


def test_the_corpus_has_every_api_and_version_that_is_served() -> None:
    made = templates(IDS)
    for key, served in SERVED.items():
        assert {t.version for t in made[int(key)]} == set(range(served.min, served.max + 1))


def test_most_frames_differ_from_each_other() -> None:
    maker = Maker(SEED, IDS)
    frames = [frame[:8] + frame[12:] for number in range(4) for _, frame in maker.block(number)]
    assert len(set(frames)) > 0.75 * len(frames)


def test_no_deletion_names_a_topic_that_the_others_need() -> None:
    maker = Maker(SEED, IDS)
    frames = [frame for number in range(60) for _, frame in maker.block(number)]
    deletions = [frame for frame in frames if frame[4:6] == struct.pack(">h", ApiKey.DELETE_TOPICS)]
    assert len(deletions) > 50
    assert not [frame for frame in deletions if b"target-" in frame]
    assert not [frame for frame in deletions if b"__consumer_offsets" in frame]
    assert [frame for frame in frames if b"target-plain" in frame]


def test_keys_that_no_api_has_are_drawn_from_all_sixteen_bits() -> None:
    maker = Maker(SEED, IDS)
    frames = [frame for number in range(20) for _, frame in maker.block(number)]
    keys = {struct.unpack_from(">h", frame, 4)[0] for frame in frames if len(frame) >= 6}
    for low in range(-32_768, 32_768, 4_096):
        assert [key for key in keys if low <= key < low + 4_096 and key not in SERVED]


def test_a_correlation_id_that_is_off_by_one_belongs_to_no_other_frame() -> None:
    ids = [int.from_bytes(f[8:12], "big") for kind, f in Maker(SEED, IDS).sound(0) if kind != LAST]
    assert len({each + off for each in ids for off in (-1, 0, 1)}) == 3 * len(ids)


def test_frames_alone(broker: Broker) -> None:
    """Each on a connection of its own: an answer, an end, or nothing until the client ends it."""
    address = address_of(broker)
    admin = Admin(address)
    maker = Maker(SEED, prepare(admin))
    for number in range(ALONE):
        kind, frame = maker.frame(number)
        with socket.create_connection(address, timeout=20) as connection:
            try:
                connection.sendall(frame)
                if kind == LAST or _waits(frame):
                    connection.shutdown(socket.SHUT_WR)
                else:
                    connection.sendall(END)
                while connection.recv(1 << 16):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass  # an end too
        if number % 100 == 0:
            admin.topics()
    admin.close()


# After a frame that may have no answer: a size that ends the connection.
END = struct.pack(">i", -1)


def _waits(frame: bytes) -> bool:
    return int.from_bytes(frame[4:6], "big") in MAY_WAIT


def test_the_tracer_notes_its_own_writes() -> None:
    for each in templates(IDS)[int(ApiKey.FETCH)]:
        ends = 0
        for spot in each.spots:
            assert ends <= spot.begin < spot.end <= len(each.data)
            ends = spot.end
    tracer = Tracer(True)
    assert (tracer.data, tracer.spots) == (bytearray(), [])


def test_only_a_fetch_of_no_isolation_level_may_fail() -> None:
    for each in templates(IDS)[int(ApiKey.FETCH)]:
        frame = framed(each.whole)
        assert isolation_level(each.version, frame) in ISOLATION_LEVELS
        assert not may_fail(ApiKey.FETCH, each.version, frame)
        assert not may_fail(ApiKey.LIST_OFFSETS, each.version, frame)


def test_percentiles_and_bars_of_the_report() -> None:
    result = report.Result(seed=1)
    result.memory_warm = report.Memory(100 << 20, 1_000, 0)
    result.memory_after = report.Memory(121 << 20, 1_000, 0)
    result.files_before, result.files_after = 10, 14
    result.log = "one line\nTraceback (most recent call last)\n"
    result.check()
    assert len(result.failures) == 3, result.failures
    kinds = ("requests", "frame_copies", "parked_requests", "watches", "slot_rings", "chunks")
    waited_for = {"connections": report.OWN_CONNECTIONS + 1, "members": 1}
    result.objects = {**dict.fromkeys(kinds, 0), **waited_for}
    result.failures.clear()
    result.check()
    assert len(result.failures) == 2, result.failures  # the connection of the awaited member
