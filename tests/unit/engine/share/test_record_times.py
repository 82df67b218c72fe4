"""Times in the headers of records, and share-partitions whose group heeds them."""

from __future__ import annotations

import pytest

from kbroker.compression import Codec
from kbroker.engine.share.reading import batches_in
from kbroker.engine.share.record_times import timed_in
from kbroker.limits import SHARE_RECORD_WAIT_MS_MAX
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.replica.share.acquiring import Acquired, Timed
from kbroker.replica.share.states import Event
from tests.unit.engine.share.world import SETTINGS, World, fetch, say

WALL_MS, NOW_MS = 1_700_000_000_000, 5_000
HOUR_MS = 3_600_000


def record(deliver: int | None = None, expires: int | None = None) -> Record:
    """Times in ms from now on."""
    headers: list[tuple[str, bytes | None]] = [("other", b"1")]
    if deliver is not None:
        headers.append(("kb-deliver-at", b"%d" % (WALL_MS + deliver)))
    if expires is not None:
        headers.append(("kb-expires-at", b"%d" % (WALL_MS + expires)))
    return Record(None, b"v", tuple(headers), 1)


def timed(data: bytes, too_far: list[int] | None = None) -> list[Timed]:
    far = [] if too_far is None else too_far
    return timed_in(data, batches_in(data), WALL_MS, NOW_MS, far.append)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_time_of_a_record(codec: Codec) -> None:
    records = [
        record(), record(10), record(0), record(-1), record(None, 1), record(None, 0),
        record(10, -5), record(10, 20), record(20, 10),
    ]  # fmt: skip
    assert timed(encode_batch(records, base_offset=100, codec=codec)) == [
        Timed(101, 101, NOW_MS + 10),
        Timed(105, 106, None),
        Timed(107, 108, NOW_MS + 10),
    ]


@pytest.mark.parametrize("value", [None, b"", b"soon", b"-5", b"1.5", b"9" * 16, b" 9999999999999"])
def test_a_value_that_is_no_time(value: bytes | None) -> None:
    for name in ("kb-deliver-at", "kb-expires-at"):
        assert timed(encode_batch([Record(None, None, ((name, value),), 1)])) == []


def test_a_record_that_would_wait_too_long_does_not_wait() -> None:
    too_far: list[int] = []
    records = [
        record(SHARE_RECORD_WAIT_MS_MAX), record(SHARE_RECORD_WAIT_MS_MAX + 1),
        record(10**14, 0), record(10**14, 10), record(10),
    ]  # fmt: skip
    assert timed(encode_batch(records), too_far) == [
        Timed(0, 0, NOW_MS + SHARE_RECORD_WAIT_MS_MAX),
        Timed(2, 2, None),
        Timed(4, 4, NOW_MS + 10),
    ]
    assert too_far == [1, 3]


def test_records_that_would_wait_too_long_stop_no_share_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(record(), record(10**14), record(10**14), record(100))
    led = world.ready()
    assert fetch(led) == [(0, 2)]
    assert led.machine.delayed == 1
    led.give_back(1, [Acquired(0, 2, 1)])
    assert fetch(led, 2) == [(0, 2)]
    assert [each.getMessage() for each in caplog.records] == [
        "share group g: records of orders-0, from 1 on, have a kb-deliver-at more than 30 days"
        " ahead, and do not wait -> see docs/share-groups.md, times of records"
    ]


def test_the_last_header_of_a_name_counts() -> None:
    headers = (("kb-deliver-at", b"%d" % (WALL_MS + 7)), ("kb-deliver-at", b"1"))
    assert timed(encode_batch([Record(None, None, headers, 1)])) == []


def test_a_name_in_a_value_alone_and_a_damaged_batch_have_none() -> None:
    assert timed(encode_batch([Record(None, b"kb-deliver-at", (), 1)])) == []
    data = bytearray(encode_batch([record(10)]))
    data[-1] ^= 1
    assert timed(bytes(data)) == []


def test_records_in_a_row_with_one_time_are_one() -> None:
    data = encode_batch([record(10)] * 3) + encode_batch([record(10)] * 2, base_offset=3)
    assert timed(data) == [Timed(0, 4, NOW_MS + 10)]


def world_of(*records: Record) -> World:
    world = World()
    world.settings = SETTINGS._replace(heeds_times=True)
    world.clock.set_wall_ms(WALL_MS)
    world.log.append(0, records=list(records))
    return world


def test_a_scheduled_record_comes_in_time() -> None:
    world = world_of(record(), record(100), record())
    led = world.ready()
    assert fetch(led) == [(0, 0), (2, 2)]
    assert led.machine.delayed == 1
    before = world.woken
    world.pass_ms(99)
    assert (fetch(led), world.woken) == ([], before)
    world.pass_ms(1)
    assert world.woken == before + 1
    assert fetch(led, 2) == [(1, 1)]


def test_a_group_that_does_not_heed_them_gets_all() -> None:
    world = world_of(record(100), record(None, 0))
    world.settings = SETTINGS
    assert fetch(world.ready()) == [(0, 1)]


def test_an_expired_record_is_archived_and_said_to_be() -> None:
    world = world_of(record(None, 0), record(None, 50), record())
    led = world.ready()
    assert fetch(led) == [(1, 2)]
    assert led.machine.start == 1
    assert world.figures.archived() == {Event.EXPIRED: 1}
    codes: list[object] = []
    say(led, 1, 2, codes, 2)  # type: ignore[arg-type]
    world.persister.answer_write()
    world.persister.answer_write()
    world.pass_ms(50)
    assert fetch(led) == [(2, 2)]  # the other has expired meanwhile
    assert world.figures.archived() == {Event.EXPIRED: 2}


def test_a_record_of_next_month_is_looked_at_now_and_then() -> None:
    world = world_of(record(SHARE_RECORD_WAIT_MS_MAX), record())
    led = world.ready()
    assert fetch(led) == [(1, 1)]
    for _ in range(3):
        world.pass_ms(HOUR_MS)
    assert led.machine.delayed == 1
    assert fetch(led, 2) == [(1, 1)]  # its lock has ended


def test_a_clock_that_was_set_back_is_followed() -> None:
    world = world_of(record(100))
    led = world.ready()
    assert fetch(led) == []
    world.clock.set_wall_ms(WALL_MS - 1_000)
    world.pass_ms(100)
    assert fetch(led) == []
    assert led.machine.delayed == 1
    world.pass_ms(1_000)
    assert fetch(led) == [(0, 0)]


def test_the_next_leader_reads_the_time_again() -> None:
    world = world_of(record(100), record())
    led = world.ready()
    assert fetch(led) == [(1, 1)]
    codes: list[object] = []
    say(led, 1, 1, codes)  # type: ignore[arg-type]
    start, batches, _ = world.persister.answer_write()
    world.log.leader_epoch += 1
    led = world.ready(start, tuple(batches))
    assert fetch(led) == []
    assert led.machine.delayed == 1
    world.pass_ms(100)
    assert fetch(led) == [(0, 0)]
